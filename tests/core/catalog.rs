//! Many servers: names, lists, search, changes of the entries.
