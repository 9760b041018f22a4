//! MCP clients on this machine and the servers that their files name.

pub mod entry;
pub mod parse;
