"""`dyntrain dashboard`: a page on 127.0.0.1 that shows what `status`, `explain`, `events` and `pool plan` tell.

    ports -> readings -> state -> changes -> server -> page (static/)

`readings` asks through the command line's ports, in threads, and turns what AWS refuses into a sentence of the part
that it concerns. `state`, `curves` and `happenings` are pure: what a page shows, and what it needs to get from one
state to the next. `watching` reads again and again while somebody looks, and not otherwise. `guard` lets in who has the
token.

With `--allow-changes` the page may ask for what `scale`, `add`, `remove` and `base replace` do: `changing` plans it by
their own code and does it once the sentence that tells it was agreed to; `guard` lets such a request in from the page
itself only.

The page gets data only: it is built from text nodes, so that no tag, log line or reason can become markup.
"""
