"""The command `dyntrain dashboard` serves a web page on 127.0.0.1, which shows the answers of the commands `status`,
`explain`, `events` and `pool plan`.

The data pass from the ports (interfaces to AWS) through the modules `readings`, `state` and `server` to the page in the
folder `static`.

The module `readings` reads in threads, through the same ports as the command line. If AWS reports an error, the
affected part of the page shows a sentence about the error. The pure modules `state`, `curves` and `happenings` build
the page's data. The module `state` also computes the changes from one state to the next. The module `watching` repeats
the readings while a page is open. The module `guard` admits only requests with the secret token in the address.

With the option `--allow-changes`, the page can request the changes that the commands `scale`, `add`, `remove` and `base
replace` make. The module `changing` plans a requested change with the code of the command line. A planned change is
carried out once the user agrees to the sentence that describes the change. The module `guard` admits requests for
changes only from the page itself.

The page receives only data, and shows the data in text nodes, so that no tag, log line or reason can be interpreted as
HTML.
"""
