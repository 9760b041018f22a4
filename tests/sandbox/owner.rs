//! Owns containers until it is killed: `URL IMAGE OWNER LOCK_DIR GUESTS`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a helper of tests"
)]

use std::io::Read;
use std::sync::Arc;

use runbridge_sandbox::SandboxLimits;
use runbridge_sandbox::container::{ContainerConfig, ContainerSandbox, EngineChoice, EngineSearch};

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    let config = ContainerConfig {
        engine: EngineChoice::Forced(args[1].clone()),
        image: args[2].clone(),
        user: "65534:65534".into(),
        limits: SandboxLimits::default(),
        owner: args[3].clone(),
        owner_lock_dir: args[4].clone().into(),
        packages: None,
        search: EngineSearch::bare(),
        spares: 1,
        only_ready: false,
    };
    let sandbox = ContainerSandbox::open(config, Arc::new(|_| {}))
        .await
        .unwrap();
    let mut guests = Vec::new();
    for _ in 0..args[5].parse::<usize>().unwrap() {
        guests.push(sandbox.start().await.unwrap());
    }
    println!("ready");
    // Until the test closes it or kills us.
    let _ = std::io::stdin().read(&mut [0]);
    sandbox.shut_down().await;
}
