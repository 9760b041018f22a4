//! Connecting to clients: what is written into their files and taken out again, on real files.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed assumption fails the test"
)]

#[path = "clients/guardian.rs"]
mod guardian;
#[path = "clients/home.rs"]
mod home;
#[path = "clients/moving.rs"]
mod moving;
#[path = "clients/own_command.rs"]
mod own_command;
#[path = "clients/places.rs"]
mod places;
#[path = "clients/races.rs"]
mod races;
#[path = "clients/refusals.rs"]
mod refusals;
#[path = "clients/round_trip.rs"]
mod round_trip;
#[path = "clients/slow.rs"]
mod slow;
#[path = "clients/texts.rs"]
mod texts;
#[path = "clients/window.rs"]
mod window;
