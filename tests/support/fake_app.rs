//! The desktop app without its window: it owns the bridge of a home and lends it to sidecars.
//!
//! Each line of its stdout tells one fact: `ready`, then `clients N` at each change. It ends in
//! order when its stdin closes.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program of the tests; a panic is its way to say what went wrong"
)]

use runbridge_core::bridge::{Bridge, Role};
use runbridge_core::listener::Listener;
use runbridge_core::local_socket::Owner;
use runbridge_core::paths::{Environment, Paths};

#[tokio::main]
async fn main() {
    let environment = Environment::of_process();
    let owner = Owner::claim(&Paths::for_user(&environment).unwrap()).unwrap();
    let bridge = Bridge::open(environment, Role::Serve).unwrap();
    let listener = Listener::open(bridge.clone(), &owner).unwrap();
    println!("ready");
    let mut clients = listener.clients();
    let telling = tokio::spawn(async move {
        while clients.changed().await.is_ok() {
            println!("clients {}", clients.borrow_and_update().len());
        }
    });
    let asked_to_end = tokio::task::spawn_blocking(|| {
        std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink()).unwrap()
    });
    asked_to_end.await.unwrap();
    listener.shut_down().await;
    bridge.shut_down().await;
    telling.abort();
}
