//! The few requests that these commands make of an engine, by hand, so that building them does not
//! need an HTTP client.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};

/// A reply's body may be this long; an engine's are a few kilobytes.
const BODY_BYTES_MAX: u64 = 4 << 20;

/// Make one request; gives the status and the body.
pub(crate) fn request(
    socket: &Path,
    method: &str,
    target: &str,
    body: Option<(&mut dyn Read, u64)>,
    within: Duration,
) -> anyhow::Result<(u16, String)> {
    let mut stream = UnixStream::connect(socket)
        .with_context(|| format!("cannot reach {}", socket.display()))?;
    stream.set_read_timeout(Some(within))?;
    stream.set_write_timeout(Some(within))?;
    let length = body.as_ref().map_or(0, |(_, length)| *length);
    // HTTP/1.0, so that the reply ends with the connection and is never chunked.
    write!(
        stream,
        "{method} {target} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/x-tar\r\nContent-Length: {length}\r\n\r\n"
    )?;
    if let Some((body, _)) = body {
        std::io::copy(body, &mut stream).context("the engine stopped taking the data")?;
    }
    let mut reply = BufReader::new(stream.take(BODY_BYTES_MAX));
    let mut line = String::new();
    reply.read_line(&mut line)?;
    let Some(status) = line
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
    else {
        bail!("{} does not answer as an engine does", socket.display());
    };
    while line.trim_end() != "" {
        line.clear();
        reply.read_line(&mut line)?;
    }
    let mut text = String::new();
    reply.read_to_string(&mut text)?;
    Ok((status, text))
}

/// Whether an engine answers on this socket.
pub(crate) fn answers(socket: &Path) -> bool {
    request(socket, "GET", "/_ping", None, Duration::from_secs(5))
        .is_ok_and(|(status, _)| status == 200)
}
