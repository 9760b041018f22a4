//! What the product's binary is in its hidden mode, alone: a worker that holds one embedded guest.

fn main() {
    runbridge_sandbox::wasi::worker_main(std::env::args().skip(1));
}
