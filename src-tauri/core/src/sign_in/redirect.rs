//! Where the browser comes back to: a page on a port of this machine, for one sign-in.
//!
//! Any program on this machine and any page in any browser can reach it. What does not carry the
//! secret state of this sign-in is refused and changes nothing.

use std::io;
use std::time::Duration;

use reqwest::Url;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::SignInError;
use super::cut;

/// A request line with a code; those known have less than 4 KiB.
const REQUEST_BYTES_MAX: usize = 32 * 1024;

/// A browser sends its request at once, or keeps the connection for later.
const REQUEST: Duration = Duration::from_secs(30);

/// What the page shows is known within this.
const OUTCOME: Duration = Duration::from_mins(1);

/// Browsers open several at a time.
const CONNECTIONS_MAX: usize = 16;

/// The path of the page.
const PATH: &str = "/callback";

/// The page, bound and not yet served.
pub(super) struct Redirect {
    listener: TcpListener,
    port: u16,
}

/// The browser has come back.
pub(super) struct Arrival {
    /// All that the address carried.
    pub(super) address: Url,
    /// Takes what the page is to say; `None`: it was good.
    pub(super) outcome: oneshot::Sender<Option<String>>,
}

impl Redirect {
    /// Bind `port`, or any if it does not matter.
    pub(super) async fn bind(port: Option<u16>) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port.unwrap_or(0))).await?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, port })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn address(&self) -> String {
        format!("http://127.0.0.1:{}{PATH}", self.port)
    }

    /// Serve until dropped. Only what carries `state` is handed on.
    pub(super) async fn serve(self, state: String, arrivals: mpsc::Sender<Arrival>) {
        let mut connections = JoinSet::new();
        loop {
            let stream = tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        tracing::debug!(%error, "a connection of a browser is lost");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                },
                Some(_) = connections.join_next() => continue,
            };
            if connections.len() < CONNECTIONS_MAX {
                let (state, arrivals) = (state.clone(), arrivals.clone());
                let base = self.address();
                connections.spawn(async move {
                    let _ = answer(stream, &base, &state, &arrivals).await;
                });
            }
        }
    }
}

/// The address that a browser ended on, if it is the one of this sign-in.
pub(super) fn read(text: &str, base: &str, state: &str) -> Option<Url> {
    let url = Url::parse(base).ok()?.join(text.trim()).ok()?;
    let given = url.query_pairs().find(|(name, _)| name == "state")?.1;
    (url.path() == PATH && is_same(given.as_bytes(), state.as_bytes())).then_some(url)
}

/// Takes as long however much of it is right.
fn is_same(guess: &[u8], state: &[u8]) -> bool {
    guess.len() == state.len()
        && guess
            .iter()
            .zip(state)
            .fold(0, |difference, (a, b)| difference | (a ^ b))
            == 0
}

async fn answer(
    mut stream: TcpStream,
    base: &str,
    state: &str,
    arrivals: &mpsc::Sender<Arrival>,
) -> io::Result<()> {
    let Ok(Ok(target)) = timeout(REQUEST, target(&mut stream)).await else {
        return Ok(());
    };
    let path = target.split('?').next().unwrap_or_default();
    if path != PATH {
        return write(&mut stream, 404, "There is nothing here.").await;
    }
    let Some(address) = read(&target, base, state) else {
        return write(
            &mut stream,
            400,
            "This is not the answer to the sign-in that Runbridge waits for. Start it again in Runbridge.",
        )
        .await;
    };
    let (outcome, told) = oneshot::channel();
    if arrivals.try_send(Arrival { address, outcome }).is_err() {
        return write(&mut stream, 200, "This sign-in is already being completed.").await;
    }
    match timeout(OUTCOME, told).await {
        Ok(Ok(None)) => {
            write(
                &mut stream,
                200,
                "You are signed in. You can close this page and go back to Runbridge.",
            )
            .await
        }
        Ok(Ok(Some(problem))) => {
            let words = format!("You are not signed in: {}", cut(&problem));
            write(&mut stream, 200, &words).await
        }
        Ok(Err(_)) | Err(_) => {
            write(
                &mut stream,
                200,
                "The sign-in was given up. Start it again in Runbridge.",
            )
            .await
        }
    }
}

/// What a GET asks for.
async fn target(stream: &mut TcpStream) -> io::Result<String> {
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    // The whole head is read: closing with unread bytes would reset the connection.
    while !text.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut piece).await?;
        if read == 0 || text.len() + read > REQUEST_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        text.extend_from_slice(&piece[..read]);
    }
    let text = String::from_utf8_lossy(&text);
    let mut words = text.split_whitespace();
    match (words.next(), words.next()) {
        (Some("GET"), Some(target)) if target.starts_with('/') => Ok(target.to_owned()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

async fn write(stream: &mut TcpStream, status: u16, words: &str) -> io::Result<()> {
    let words = words
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    let page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Runbridge</title>\
         <body style=\"font:16px system-ui;max-width:36em;margin:4em auto;padding:0 1em\">\
         <h1 style=\"font-size:1.2em\">Runbridge</h1><p>{words}</p></body></html>"
    );
    let head = format!(
        "HTTP/1.1 {status} \r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n\
         Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'\r\n\
         Connection: close\r\n\r\n",
        page.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(page.as_bytes()).await?;
    stream.shutdown().await
}

/// The code that the address carries, from the right one.
pub(super) fn code(address: &Url, issuer: &str, names_itself: bool) -> Result<String, SignInError> {
    let mut code = None;
    let mut error = None;
    let mut words = None;
    let mut from = None;
    for (name, value) in address.query_pairs() {
        match &*name {
            "code" => code = Some(value.into_owned()),
            "error" => error = Some(value.into_owned()),
            "error_description" => words = Some(value.into_owned()),
            "iss" => from = Some(value.into_owned()),
            _ => {}
        }
    }
    match from {
        Some(from) if from != issuer => {
            return Err(SignInError::Malformed {
                detail: format!("the answer came from {} and not from {issuer}", cut(&from)),
            });
        }
        None if names_itself => {
            return Err(SignInError::Malformed {
                detail: format!("the answer does not say that it came from {issuer}"),
            });
        }
        Some(_) | None => {}
    }
    if let Some(error) = error {
        let words = words.map_or_else(String::new, |words| format!(": {}", cut(&words)));
        return Err(SignInError::Denied {
            detail: format!("{}{words}", cut(&error)),
        });
    }
    code.filter(|code| !code.is_empty())
        .ok_or_else(|| SignInError::Malformed {
            detail: format!("{issuer} sent the browser back without a code"),
        })
}
