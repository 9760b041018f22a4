//! A sandbox that executes scripts in this process, so that what surrounds a run can be tested
//! without an engine or Python. One line is one step:
//!
//! | step | does |
//! |--|--|
//! | `print TEXT`, `eprint TEXT` | writes a line |
//! | `call SERVER TOOL JSON` | calls a tool and prints what came of it |
//! | `ask METHOD JSON` | asks the host for anything and prints the answer |
//! | `value TEXT` | is the value of the last expression |
//! | `raise MESSAGE` | ends the run with a `ValueError` |
//! | `wait` | waits until the run is interrupted |

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use runbridge_core::sandboxes::{ContainerFacts, Guests, SandboxFacts};
use runbridge_sandbox::container::EngineKind;
use runbridge_sandbox::frame::{self, HEADER_BYTES, Kind};
use runbridge_sandbox::{Guest, GuestExit, Mounting, SandboxError};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, DuplexStream};
use tokio::sync::mpsc;

/// Starts guests that execute scripts, and counts them.
#[derive(Default)]
pub(crate) struct Scripted {
    pub(crate) started: Arc<AtomicUsize>,
}

impl Guests for Scripted {
    fn facts(&self) -> SandboxFacts {
        SandboxFacts::Container(ContainerFacts {
            backend: "container",
            engine: EngineKind::Podman,
            version: "0".to_owned(),
            socket: "nowhere".to_owned(),
            rootless: true,
            cgroup_version: None,
            image: "scripted".to_owned(),
            image_id: "sha256:0".to_owned(),
            image_bytes: 7,
            limits: BTreeMap::new(),
            warnings: Vec::new(),
        })
    }

    fn start(&self) -> BoxFuture<'static, Result<Guest, SandboxError>> {
        self.started.fetch_add(1, Ordering::SeqCst);
        let (input, of_guest) = tokio::io::duplex(1 << 20);
        let (pieces, output) = mpsc::channel(64);
        let guest = tokio::spawn(serve(of_guest, pieces));
        let end = move |_kill: bool| {
            guest.abort();
            async { GuestExit::default() }.boxed()
        };
        let guest = Guest {
            input: Box::new(input),
            output,
            end: Box::new(end),
            gauge: Some(Arc::new(|| {
                let used = runbridge_sandbox::Usage {
                    memory_bytes: 12_345_678,
                    cpu_ns: Some(1_000_000),
                };
                async move { Some(used) }.boxed()
            })),
            mounting: Mounting::Folder,
        };
        async { Ok(guest) }.boxed()
    }
}

/// A frame of the host.
struct Heard {
    kind: u8,
    id: u64,
    payload: Bytes,
}

async fn hear(input: &mut DuplexStream) -> Option<Heard> {
    let mut header = [0; HEADER_BYTES];
    input.read_exact(&mut header).await.ok()?;
    let mut rest = &header[4..];
    let length = rest.get_u32() as usize;
    let id = rest.get_u64();
    let mut payload = vec![0; length];
    input.read_exact(&mut payload).await.ok()?;
    Some(Heard {
        kind: header[1],
        id,
        payload: payload.into(),
    })
}

/// One run's way out.
struct Out {
    pieces: mpsc::Sender<Bytes>,
    calls: u64,
}

impl Out {
    async fn say(&self, kind: Kind, id: u64, payload: &[u8]) {
        let mut bytes = BytesMut::new();
        frame::encode(kind, id, payload, &mut bytes);
        // The host may have let go of us.
        let _ = self.pieces.send(bytes.freeze()).await;
    }

    /// `None`: interrupted, or the host is gone.
    async fn ask(
        &mut self,
        input: &mut DuplexStream,
        method: &str,
        params: Value,
    ) -> Option<Value> {
        self.calls += 1;
        let call = json!({ "method": method, "params": params });
        self.say(Kind::Call, self.calls, call.to_string().as_bytes())
            .await;
        loop {
            let heard = hear(input).await?;
            if heard.kind == Kind::Interrupt as u8 {
                return None;
            }
            if heard.kind == Kind::Reply as u8 && heard.id == self.calls {
                return serde_json::from_slice(&heard.payload).ok();
            }
        }
    }
}

async fn serve(mut input: DuplexStream, pieces: mpsc::Sender<Bytes>) {
    let mut out = Out { pieces, calls: 0 };
    let hello = json!({ "python": "3.14.0", "uid": 65534 });
    out.say(Kind::Hello, 0, hello.to_string().as_bytes()).await;
    while let Some(heard) = hear(&mut input).await {
        if heard.kind == Kind::Run as u8 {
            let run: Value = serde_json::from_slice(&heard.payload).unwrap();
            let code = run["code"].as_str().unwrap().to_owned();
            let done = execute(&code, heard.id, &mut input, &mut out).await;
            let done = done.unwrap_or_else(|| failure("KeyboardInterrupt", ""));
            out.say(Kind::Done, heard.id, done.to_string().as_bytes())
                .await;
        }
    }
}

fn failure(kind: &str, message: &str) -> Value {
    json!({ "error": {
        "type": kind,
        "message": message,
        "traceback": format!("Traceback (most recent call last):\n{kind}: {message}\n"),
    }})
}

/// `None`: interrupted.
async fn execute(code: &str, id: u64, input: &mut DuplexStream, out: &mut Out) -> Option<Value> {
    let mut value = Value::Null;
    for line in code.lines() {
        let (step, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        match step {
            "print" => {
                out.say(Kind::Stdout, id, format!("{rest}\n").as_bytes())
                    .await;
            }
            "eprint" => {
                out.say(Kind::Stderr, id, format!("{rest}\n").as_bytes())
                    .await;
            }
            "value" => value = rest.into(),
            "raise" => return Some(failure("ValueError", rest)),
            "wait" => loop {
                if hear(input).await?.kind == Kind::Interrupt as u8 {
                    return None;
                }
            },
            "call" | "ask" => {
                let mut words = rest.splitn(3, ' ');
                let mut word = || words.next().unwrap_or_default();
                let (method, params) = if step == "call" {
                    let (server, tool, arguments) = (word(), word(), word());
                    let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
                    let params = json!({ "server": server, "tool": tool, "arguments": arguments });
                    ("tool.call", params)
                } else {
                    let (method, params) = rest.split_once(' ').unwrap_or((rest, "{}"));
                    (method, serde_json::from_str(params).unwrap())
                };
                let answer = out.ask(input, method, params).await?;
                out.say(Kind::Stdout, id, format!("{answer}\n").as_bytes())
                    .await;
            }
            "" | "#" => {}
            other => panic!("the script has no step `{other}`"),
        }
    }
    Some(json!({ "result": value }))
}
