"""The sections of the page: a module here that exports `ORDER`, `TITLE` and `render` is one."""
