//! A guest driven by hand: frames in and out, without the code that usually drives it.

use std::time::Duration;

use bytes::BytesMut;
use runbridge_sandbox::frame::{self, Kind};
use runbridge_sandbox::{Guest, GuestExit};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

const WITHIN: Duration = Duration::from_secs(30);

pub(crate) struct Python {
    pub(crate) guest: Guest,
    pub(crate) hello: Value,
    buffer: BytesMut,
    runs: u64,
}

/// What a run printed, and how it was done; `done` is `None` when the guest ended first.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) done: Option<Value>,
}

impl Ran {
    /// stdout as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }
}

impl Python {
    /// Take a guest and wait for its hello.
    pub(crate) async fn new(guest: Guest) -> Self {
        let mut python = Self {
            guest,
            hello: Value::Null,
            buffer: BytesMut::new(),
            runs: 0,
        };
        let Some((Kind::Hello, _, payload)) = python.frame().await else {
            panic!("no hello")
        };
        python.hello = serde_json::from_slice(&payload).unwrap();
        python
    }

    pub(crate) async fn send(&mut self, code: &str) {
        self.runs += 1;
        let payload = json!({
            "code": code, "name": format!("<run {}>", self.runs), "images_bytes_max": 1_000_000,
            "context": {"servers": []},
        });
        let mut bytes = BytesMut::new();
        frame::encode(
            Kind::Run,
            self.runs,
            payload.to_string().as_bytes(),
            &mut bytes,
        );
        self.guest.input.write_all(&bytes).await.unwrap();
        self.guest.input.flush().await.unwrap();
    }

    pub(crate) async fn run(&mut self, code: &str) -> Ran {
        self.send(code).await;
        self.collect().await
    }

    /// What the run that was sent prints until it is done.
    pub(crate) async fn collect(&mut self) -> Ran {
        let mut ran = Ran::default();
        while let Some((kind, _, payload)) = self.frame().await {
            let text = || String::from_utf8_lossy(&payload).into_owned();
            match kind {
                Kind::Stdout => ran.stdout.push_str(&text()),
                Kind::Stderr => ran.stderr.push_str(&text()),
                Kind::Done => {
                    ran.done = Some(serde_json::from_slice(&payload).unwrap());
                    break;
                }
                other => panic!("unexpected frame {other:?}"),
            }
        }
        ran
    }

    pub(crate) async fn end(self, kill: bool) -> GuestExit {
        (self.guest.end)(kill).await
    }

    async fn frame(&mut self) -> Option<(Kind, u64, bytes::Bytes)> {
        loop {
            if let Some(frame) = frame::decode(&mut self.buffer).unwrap() {
                return Some((frame.kind, frame.id, frame.payload));
            }
            let piece = tokio::time::timeout(WITHIN, self.guest.output.recv())
                .await
                .expect("the guest is silent");
            self.buffer.extend_from_slice(&piece?);
        }
    }
}
