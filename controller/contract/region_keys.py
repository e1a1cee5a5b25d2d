"""AWS's public keys that verify the instance identity documents of each region, and the keys that the controller's
setting `DYNTRAIN_IDENTITY_KEYS` makes it trust.

The keys are those of the certificates for the base64-encoded signature ("RSA") on AWS's page
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/regions-certs.html, read on 2026-08-14. Each certificate is signed
by its own key. Each key is also in at least two of four copies of AWS's page, which other projects made between 2024-06
and 2026-08. Regions that only one of the four copies contains, such as eusc-de-east-1, are not in this table. The four
copies are:
https://github.com/spiffe/spire/blob/main/pkg/server/plugin/nodeattestor/awsiid/awsrsa1024/cacerts.go
https://github.com/in-toto/go-witness/blob/main/attestation/aws-iid/aws-certs.go
https://github.com/rspamd/awsregioncertificates/blob/master/regioncert_gen.go
https://github.com/smallstep/certificates/blob/master/authority/provisioner/aws_certificates.pem

The certificates expire between 2028 and 2204. AWS renews certificates without a change of the key: most regions still
use the key of a certificate that expired on 2024-06-05. `_KEY_BY_REGIONS` therefore contains no expiry dates.
"""

from __future__ import annotations

from dyntrain.controller.contract.instance_identity import Keys, parse_keys

REGION = "region"  # as a setting: trust AWS's key of the region
UNVERIFIED = "unverified"  # as a setting: senders are not verified

# in the format of `openssl x509 -pubkey -noout`, without the PEM frame
_KEY_BY_REGIONS: tuple[tuple[str, str], ...] = (
    (
        "ap-northeast-1 ap-northeast-2 ap-northeast-3 ap-south-1 ap-southeast-1 ap-southeast-2 ca-central-1 "
        "eu-central-1 eu-north-1 eu-west-1 eu-west-2 eu-west-3 sa-east-1 us-east-1 us-east-2 us-west-1 "
        "us-west-2",
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCHvRjf/0kStpJ248khtIaN8qkDN3tkw4VjvA9nvPl2anJO+eIBUqPfQG09kZlwpWpmyO8b"
        "GB2RWqWxCwuB/dcnIob6w420k9WY5C0IIGtDRNauN3kuvGXkw3HEnF0EjYr0pcyWUvByWY4KswZV42X7Y7XSS13hOIcL6NLA+H94/QIDAQAB",
    ),
    (
        "cn-north-1 cn-northwest-1",
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQC6GFQ2WoBl1xZYH85INUMaTc4D30QXM6f+YmWZyJD9fC7Z0UlaZIKoQATqCO58KNCre+jE"
        "CELYIX56Uq0lb8LRLP8tijrQ9Sp3qJcXiH66kH0eQ44a5YdewcFOy+CSAYDUIaB6XhTQJ2r7bd4A2vw3ybbxTOWONKdOWtgIe3M3iwIDAQAB",
    ),
    (
        "us-gov-east-1 us-gov-west-1",
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCpohwYUVPH9I7Vbkb3WMe/JB0Y/bmfVj3VpcK445YBRO9K80alesjgBc2tAX4KYg4Lht4E"
        "BKccLHTzaNi51YEGX1aLNrSmxhz1+WtzNLNUsyY3zD9zvwX/3k1+JB2dRA+m+Cpwx4mjzZyAeQtHtegVaAytkmqtxQrSCexBxvqRqQIDAQAB",
    ),
    (
        "af-south-1",
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDFd571nUzVtke3rPyRkYfvs3jh0C0EMzzG72boyUNjnfw1+m0TeFraTLKb9T6F7TuB/ZEN"
        "+vmlYqr2+5Va8U8qLbPF0bRH+FdaKjhgWZdYXxGzQzU3ioy5W5ZM1VyB7iUsxEAlxsybC3ziPYaHI42UiTkQNahmoroNeqVyHNnBpQIDAQAB",
    ),
    (
        "ap-east-1",
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQC1kkHXYTfc7gY5Q55JJhjTieHAgacaQkiRPity9QPDE3b+NXDh4UdP1xdIw73JcIIG3sG9"
        "RhWiXVCHh6KkuCTqJfPUknIKk8vsM3RXflUpBe8Pf+P92pxqPMCz1Fr2NehS3JhhpkCZVGxxwLC5gaG0Lr4rFORubjYYRh84dK98VwIDAQAB",
    ),
    (
        "ap-east-2",
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDVdclgpcIIsyGG51ag8srK1UMfZ+Ioh9E4PLP+cIWQcdh31fv2kV/whKaqfmifNefBIuHr"
        "TPl6L+mJQbsfeA+TiEx1Jamg4lwQfhgQKQCmjZVMaHtK+AY57TVN6FBfHXxT2MXzktsKxAQRGeSTFQYrHRzSYvu+GkA+37lqyWRfcwIDAQAB",
    ),
    (
        "ap-south-2",
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDTwHu0ND+sFcobrjvcAYm0PNRD8f4R1jAzvoLt2+qGeOTAyO1Httj6cmsYN3AP1hN5iYup"
        "pFiYsl2eNPa/CD0Vg0BAfDFlV5rzjpA0j7TJabVh4kj7JvtD+xYMi6wEQA4x6SPONY4OeZ2+8o/HS8nucpWDVdPRO6ciWUlMhjmDmwIDAQAB",
    ),
    (
        "ap-southeast-3",
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCnCS/Vbt0gQ1ebWcur2hSO7PnJifE4OPxQ7RgSAlc4/spJp1sDP+ZrS0LO1ZJfKhXf1R9S"
        "3AUwLnsc7b+IuVXdY5LK9RKqu64nyXP5dx170zoL8loEyCSuRR2fs+04i2QsWBVP+KFNAn7P5L1EHRjkgTO8kjNKviwRV+OkP9ab5wIDAQAB",
    ),
    (
        "ap-southeast-4",
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDHezwQr2VQpQSTW5TXNefiQrP+qWTGAbGsPeMX4hBMjAJUKys2NIRcRZaLM/BCew2FIPVj"
        "Ntlaj6Gwn9ipU4Mlz3zIwAMWi1AvGMSreppt+wV6MRtfOjh0Dvj/veJe88aEZJMozNgkJFRS+WFWsckQeL56tf6kY6QTlNo8V/0CsQIDAQAB",
    ),
    (
        "ap-southeast-5",
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDFuKydxZsordNH7bLwIluEGOkX7/CdLdpeqkDKEhQkFwzpRxaX4EAlkGh2/o7D8qneC9cG"
        "QhqSG5WVVBrmZG7sfkFOM4m1AtY++kfv+MYto1VFgLk1xJbkpq1r4YeQUl+ZsJYsZpyX/t+g8s7rW0OVcBsYx4L75bf34z38mwK8PQIDAQAB",
    ),
    (
        "ap-southeast-6",
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQC9AsBNOUfT8QpguHqMa9KIXP/YgZOmfRAgEmnLawXTC+40bXUq/fwkx+cebv3xCvUx6d07"
        "/iDlD0dm2Hf2HhPFi3OaCI7vc8c3lqVBvcn6yzmwv35aSEvtVm2NHC3j4/q6vN2tR2d4a1Mf1QhmOVOJ7XiTEbCy2Yv+pmDbk29V6QIDAQAB",
    ),
    (
        "ap-southeast-7",
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCajgAeOauwvqGDLrHvxujnZ1BnkMzwjrycMUTkj8jqNtWoDQWUJVNPZJILosEUVwK2I3oN"
        "kEsx/ryl9XfXcNNceoYfVEPzkTzozrZyuOG66FWtUU1LKeJ7h9/rX0Zd9lZEokrdr6dLPt9FsHWaK5ExlUnWBjNltcQLkkKqoeYaFwIDAQAB",
    ),
    (
        "ca-west-1",
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDK1kIcG5Q6adBXQM75GldfTSiXl7tn54p10TnspI0ErDdb2B6q2Ji/v4XBVH13ZCMgqlRH"
        "MqV8AWI5iO6gFn2A9sN3AZXTMqwtZeiDdebq3k6Wt7ieYvpXTg0qvgsjQIovRZWaBDBJy9x8C2hW+w9lMQjFHkJ7Jy/PHCJ69EzebQIDAQAB",
    ),
    (
        "eu-central-2",
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQC2mdGdps5Rz2jzYcGNsgETTGUthJRrVqSnUWJXTlVaIbkGPLKO6Or7AfWKFp2sgRJ8vLsj"
        "oBVR5cESVK7cuK1wItjvJyi/opKZAUusJx2hpgU3pUHhlp9ATh/VeVD582jTd9IY+8t5MDa6Z3fGliByEiXz0LEHdi8MBacLREu1TwIDAQAB",
    ),
    (
        "eu-south-1",
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCjiPgW3vsXRj4JoA16WQDyoPc/eh3QBARaApJEc4nPIGoUolpAXcjFhWplo2O+ivgfCsc4"
        "AU9OpYdAPha3spLey/bhHPRi1JZHRNqScKP0hzsCNmKhfnZTIEQCFvspDRp4zr91/WS06/flJFBYJ6JHhp0KwM81XQG59lV6kkoW7QIDAQAB",
    ),
    (
        "eu-south-2",
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDB/VvR1+45Aey5zn3vPk6xBm5o9grSDL6D2iAuprQnfVXn8CIbSDbWFhA3fi5ippjKkh3s"
        "l8VyCvCOUXKdOaNrYBrPRkrdHdBuL2Tc84RO+3m/rxIUZ2IK1fDlC6sWAjddf6sBrV2w2a78H0H8EwuwiSgttURBjwJ7KPPJCqaqrQIDAQAB",
    ),
    (
        "il-central-1",
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDrc24u3AgFxnoPgzxR6yFXOamcPuxYXhYKWmapb+S8vOy5hpLoRe4RkOrY0cM3bN07GdEM"
        "lin5mU0y1t8y3ct4YewvmkgT42kTyMM+t1K4S0xsqjXxxS716uGYh7eWtkxrCihj8AbXN/6pa095h+7TZyl2n83keiNUzM2KoqQVMwIDAQAB",
    ),
    (
        "me-central-1",
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDcaTgW/KyA6zyruJQrYy00a6wqLA7eeUzk3bMiTkLsTeDQfrkaZMfBAjGaaOymRo1C3qzE"
        "4rIenmahvUplu9ZmLwL1idWXMRX2RlSvIt+d2SeoKOKQWoc2UOFZMHYxDue7zkyk1CIRaBukTeY13/RIrlc6X61zJ5BBtZXlHwayjQIDAQAB",
    ),
    (
        "me-south-1",
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQC1TQg02RJyHqF9UhGKqupNQVdGZaWOctyp6Dq3ggBOfPU8EuDF+fvBc3egJgAproHgT0JO"
        "x5um9voP3eLVsnMsS2kJXKvNQwdRpl3oUZGUYBnkYHtXj1ndU1ANCPD/0AU+0oFHj5v5ADUhVPj+7O7tTTZfr8p8otMFFK8O/8CGUwIDAQAB",
    ),
    (
        "mx-central-1",
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDfvOnCzm1iN58Nm7k6ehoy6v0lnnFI617D6CY3bfuq01RCdEQL96+pYawJieTH8JAQKj02"
        "CAa3AeaqdXTE/pDhI/YKLreeMb4K68WMn24Wjjs6oxjBbAmsKXtt9ihKHGBFNUhgFrNFYyA2i7ieJviwpHjQ/XgXiG2u1/t/4VydUwIDAQAB",
    ),
)


def keys_text(region: str) -> str:
    """The public key of AWS for the region, in the format that `parse_keys` reads. Returns "" for a region without a
    known key.
    """
    return next((key for regions, key in _KEY_BY_REGIONS if region in regions.split()), "")


def trusted_keys(setting: str, region: str) -> Keys:
    """The keys whose signatures on instance identity documents are trusted. Returns an empty tuple if identity
    documents are not verified. `setting` contains public keys, the word region, or the word unverified. An empty
    `setting` means region. Raises ValueError if the keys are wrong.
    """
    setting_word = setting.strip()
    setting_keys = (
        keys_text(region) if setting_word in ("", REGION) else "" if setting_word == UNVERIFIED else setting_word
    )
    return parse_keys(setting_keys) if setting_keys else ()


def identity_setting_kind(setting: str) -> str:
    """The kind of a setting of the trusted keys: `region`, `unverified`, or, for a setting that contains public keys,
    `keys`.
    """
    setting_word = setting.strip()
    return setting_word if setting_word in (REGION, UNVERIFIED) else "keys" if setting_word else REGION


def unverified_cause(setting: str, region: str) -> str:
    """A text that says why instances need not prove their identity. Returns "" if instances must prove their identity.
    `setting` is a setting as for `trusted_keys`, or a result of `identity_setting_kind`.
    """
    setting_kind = identity_setting_kind(setting)
    if setting_kind == UNVERIFIED:
        return "it was set so"
    return f"no key of AWS is known for {region}" if setting_kind == REGION and not keys_text(region) else ""
