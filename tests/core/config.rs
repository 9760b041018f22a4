//! Settings, discovery of servers, watching and the launch environment, on real files.

#[path = "config/clients.rs"]
mod clients;
#[path = "config/settings.rs"]
mod settings;
