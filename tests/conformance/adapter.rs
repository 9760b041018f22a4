//! An address for a server over stdio, in the revision without sessions: each request goes down the one
//! pipe under a number of ours, and what comes back is sorted by it. What only HTTP has (hosts, origins,
//! headers) is not looked at.
//!
//! Its arguments are the server's command line. It ends with its own input.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a program of the tests; what goes wrong is for the suite's log"
)]

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures_util::Stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

/// Where a server's message says which subscription it is about.
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// The server, and who waits for what.
struct Pipe {
    stdin: tokio::sync::Mutex<ChildStdin>,
    open: Mutex<HashMap<u64, Exchange>>,
    last: AtomicU64,
}

/// One request under way, with what stood where our number stands now.
struct Exchange {
    id: Value,
    token: Option<Value>,
    messages: mpsc::UnboundedSender<Value>,
}

#[tokio::main]
async fn main() {
    let mut command = std::env::args_os().skip(1);
    let mut server = Command::new(command.next().expect("a program"))
        .args(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let pipe = Arc::new(Pipe {
        stdin: tokio::sync::Mutex::new(server.stdin.take().unwrap()),
        open: Mutex::default(),
        last: AtomicU64::new(0),
    });
    tokio::spawn(read(Arc::clone(&pipe), server.stdout.take().unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    eprintln!("at http://{}/mcp", listener.local_addr().unwrap());
    let serving = async {
        while let Ok((stream, _)) = listener.accept().await {
            let pipe = Arc::clone(&pipe);
            let service = service_fn(move |request| answer(Arc::clone(&pipe), request));
            let connection = hyper::server::conn::http1::Builder::new();
            tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
        }
    };
    let mut rest = Vec::new();
    let mut stdin = tokio::io::stdin();
    tokio::select! {
        () = serving => {}
        _ = stdin.read_to_end(&mut rest) => {}
    }
    // The server ends with its input, too; the runtime would wait for the thread that reads ours.
    drop(pipe);
    std::process::exit(0);
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

async fn answer(pipe: Arc<Pipe>, request: Request<Incoming>) -> Result<Answer, Infallible> {
    if request.method() != Method::POST {
        return Ok(plain(StatusCode::METHOD_NOT_ALLOWED, String::new()));
    }
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let Ok(message) = serde_json::from_slice::<Value>(&body) else {
        return Ok(plain(StatusCode::BAD_REQUEST, String::new()));
    };
    if message.get("id").is_none() {
        pipe.write(&message).await;
        return Ok(plain(StatusCode::ACCEPTED, String::new()));
    }
    let mut messages = pipe.ask(message).await;
    let Some(first) = messages.receiver.recv().await else {
        return Ok(plain(StatusCode::BAD_GATEWAY, String::new()));
    };
    if is_last(&first) {
        messages.ended = true;
        return Ok(plain(status_of(&first), first.to_string()));
    }
    messages.first = Some(first);
    let mut answer = Response::new(StreamBody::new(messages).boxed());
    let kind = "text/event-stream".parse().unwrap();
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(answer)
}

fn plain(status: StatusCode, body: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)).boxed());
    *answer.status_mut() = status;
    let kind = "application/json".parse().unwrap();
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

/// As the revision has it for errors that come alone.
fn status_of(message: &Value) -> StatusCode {
    match message["error"]["code"].as_i64() {
        None => StatusCode::OK,
        Some(-32601) => StatusCode::NOT_FOUND,
        Some(_) => StatusCode::BAD_REQUEST,
    }
}

fn is_last(message: &Value) -> bool {
    message.get("method").is_none()
}

impl Pipe {
    async fn write(&self, message: &Value) {
        let line = format!("{message}\n");
        let mut stdin = self.stdin.lock().await;
        // A server that has gone shows itself by the end of its output.
        let _ = stdin.write_all(line.as_bytes()).await;
    }

    async fn ask(self: &Arc<Self>, mut message: Value) -> Messages {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let id = std::mem::replace(&mut message["id"], number.into());
        let token = message.pointer_mut("/params/_meta/progressToken");
        let token = token.map(|token| std::mem::replace(token, number.into()));
        let (sender, receiver) = mpsc::unbounded_channel();
        let exchange = Exchange {
            id,
            token,
            messages: sender,
        };
        self.open.lock().unwrap().insert(number, exchange);
        self.write(&message).await;
        Messages {
            pipe: Arc::clone(self),
            number,
            first: None,
            receiver,
            ended: false,
        }
    }

    /// Give a message of the server to whom it concerns.
    fn sort(&self, mut message: Value) {
        let last = is_last(&message);
        let about = if last {
            &message["id"]
        } else {
            let params = &message["params"];
            let subscription = &params["_meta"][SUBSCRIPTION];
            if subscription.is_null() {
                &params["progressToken"]
            } else {
                subscription
            }
        };
        let Some(number) = about.as_u64() else { return };
        let mut open = self.open.lock().unwrap();
        let Some(exchange) = open.get(&number) else {
            return;
        };
        if last {
            message["id"] = exchange.id.clone();
        }
        if let (Some(token), Some(place)) = (
            &exchange.token,
            message.pointer_mut("/params/progressToken"),
        ) {
            *place = token.clone();
        }
        for part in ["params", "result"] {
            let meta = message.get_mut(part).and_then(|part| part.get_mut("_meta"));
            if let Some(place) = meta.and_then(|meta| meta.get_mut(SUBSCRIPTION)) {
                *place = exchange.id.clone();
            }
        }
        let _ = exchange.messages.send(message);
        if last {
            open.remove(&number);
        }
    }
}

async fn read(pipe: Arc<Pipe>, stdout: ChildStdout) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        pipe.sort(serde_json::from_str(&line).expect("a server says JSON"));
    }
    pipe.open.lock().unwrap().clear();
}

/// What the server says of one request, as a stream of events. Dropped before the end, it was
/// cancelled.
struct Messages {
    pipe: Arc<Pipe>,
    number: u64,
    first: Option<Value>,
    receiver: mpsc::UnboundedReceiver<Value>,
    ended: bool,
}

impl Stream for Messages {
    type Item = Result<Frame<Bytes>, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let message = match self.first.take() {
            Some(first) => Some(first),
            None => std::task::ready!(self.receiver.poll_recv(context)),
        };
        Poll::Ready(message.map(|message| {
            self.ended = is_last(&message);
            Ok(Frame::data(Bytes::from(format!("data: {message}\n\n"))))
        }))
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let (pipe, number) = (Arc::clone(&self.pipe), self.number);
        tokio::spawn(async move {
            pipe.open.lock().unwrap().remove(&number);
            let params = json!({ "requestId": number });
            let cancelled = json!({
                "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params,
            });
            pipe.write(&cancelled).await;
        });
    }
}
