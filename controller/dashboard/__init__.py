"""`dyntrain dashboard`: a page on 127.0.0.1 with the answers of `status`, `explain`, `events` and `pool plan`.

    ports -> readings -> state -> changes -> server -> page (static/)

`readings` reads through the command line's ports, in threads. An error of AWS becomes a sentence in one part of the
page. `state`, `curves` and `happenings` are pure: they build the page's data, and the changes from one state to the
next. `watching` reads repeatedly while a page is open. `guard` admits only requests with the token.

With `--allow-changes` the page can request the changes of `scale`, `add`, `remove` and `base replace`. `changing` plans
a change with the code of the command line, and carries out the plan once the user agrees to the plan's sentence.
`guard` admits requests for changes only from the page itself.

The page gets only data, and shows data in text nodes of the DOM, so that no tag, log line or reason can become markup.
"""
