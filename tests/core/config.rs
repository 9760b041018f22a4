//! Settings, discovery of servers, watching and the launch environment, on real files.

#[path = "config/clients.rs"]
mod clients;
#[path = "config/launch_env.rs"]
mod launch_env;
#[path = "config/settings.rs"]
mod settings;
#[path = "config/watch.rs"]
mod watch;
