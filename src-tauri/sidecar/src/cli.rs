//! Commands for people. Each prints to stdout what was asked for, and to stderr everything else.

pub(crate) mod clients;
pub(crate) mod connect;
pub(crate) mod doctor;
pub(crate) mod login;
pub(crate) mod memory;
pub(crate) mod packages;
pub(crate) mod run;
pub(crate) mod search;
pub(crate) mod secret;
pub(crate) mod servers;
