//! The older HTTP+SSE: one stream of events brings all messages of the server, and its first event
//! names the address that ours are posted to.
//!
//! The stream is the connection. When it ends, the connection has ended.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use reqwest::{Response, Url};
use tokio::time::timeout;

use super::super::seconds;
use super::super::wire::{LINE_BYTES_MAX, Line, Parsed, parse};
use super::events::{Event, EventParser};
use super::site::{self, Kind, Site, is_same_place, kind, shown};
use super::{Fault, Outgoing, Remote};

/// From the beginning of the stream to its first event, which servers send at once. A stream without
/// it is not one of this transport.
const FIRST_EVENT: Duration = Duration::from_secs(5);

/// A message is accepted within this; its answer comes on the stream.
const ACCEPTED: Duration = Duration::from_secs(30);

/// A stream whose first event has been read.
pub(super) struct Opened {
    pub(super) endpoint: Url,
    stream: Stream,
}

struct Stream {
    response: Response,
    parser: EventParser,
    events: VecDeque<Event>,
}

impl Stream {
    async fn next(&mut self) -> Result<Event, Fault> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            let piece = match self.response.chunk().await {
                Ok(Some(piece)) => piece,
                Ok(None) => {
                    return Err(Fault::Unreachable(
                        "the server ended its stream of events".to_owned(),
                    ));
                }
                Err(error) => return Err(site::cut(&error)),
            };
            self.parser
                .feed(&piece, &mut self.events)
                .map_err(|_| site::too_long())?;
        }
    }
}

/// Open the stream and learn the address for messages.
pub(super) async fn open(site: &Site) -> Result<Opened, Fault> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    let response = site.get(headers).await?;
    if !response.status().is_success() {
        return Err(site.refusal(response).await.0);
    }
    let from = response.url().clone();
    match kind(&response) {
        Kind::Events => {}
        Kind::Other(kind) if kind == "text/html" => {
            return Err(Fault::Protocol(format!(
                "{} answered with a web page (text/html) instead of a stream of events",
                shown(&from)
            )));
        }
        Kind::Json | Kind::Nothing | Kind::Other(_) => {
            return Err(Fault::Protocol(format!(
                "{} answered with something else than a stream of events",
                shown(&from)
            )));
        }
    }
    let mut stream = Stream {
        response,
        parser: EventParser::new(LINE_BYTES_MAX),
        events: VecDeque::new(),
    };
    let named = timeout(FIRST_EVENT, async {
        loop {
            let event = stream.next().await?;
            if event.name == "endpoint" {
                return Ok(event.data);
            }
        }
    });
    let named = named.await.unwrap_or_else(|_| {
        Err(Fault::Protocol(format!(
            "{} named no address for messages within {}",
            shown(&from),
            seconds(FIRST_EVENT)
        )))
    })?;
    let endpoint = endpoint(&from, named.trim())?;
    Ok(Opened { endpoint, stream })
}

/// The server must not send our messages, and the entry's headers, elsewhere.
fn endpoint(from: &Url, named: &str) -> Result<Url, Fault> {
    let url = from.join(named).map_err(|_| {
        Fault::Protocol(format!(
            "{} names an address for messages that is none",
            shown(from)
        ))
    })?;
    if is_same_place(from, &url) {
        Ok(url)
    } else {
        Err(Fault::Protocol(format!(
            "{} wants messages to be sent to another host, {}; that is not done",
            shown(from),
            shown(&url)
        )))
    }
}

/// Deliver messages until the stream ends, and the connection with it.
pub(super) async fn read(remote: Arc<Remote>, opened: Opened) {
    let mut stream = opened.stream;
    let fault = loop {
        match stream.next().await {
            Err(fault) => break fault,
            Ok(event) if matches!(event.name.as_str(), "" | "message") => {
                if let Parsed::Messages(messages) = parse(&Line::Whole(event.data.as_bytes())) {
                    for message in messages {
                        remote.deliver(message).await;
                    }
                }
            }
            Ok(_) => {}
        }
    };
    remote.end(fault);
}

/// Send one message.
pub(super) async fn post(
    remote: &Remote,
    endpoint: &Url,
    outgoing: &Outgoing,
) -> Result<(), Fault> {
    let sent = remote
        .site
        .post_to(endpoint.clone(), HeaderMap::new(), outgoing.body.clone());
    let response = timeout(ACCEPTED, sent).await.unwrap_or_else(|_| {
        Err(Fault::Unreachable(format!(
            "{} did not accept a message within {}",
            shown(endpoint),
            seconds(ACCEPTED)
        )))
    })?;
    if response.status().is_success() {
        Ok(())
    } else {
        Err(remote.site.refusal(response).await.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is a test's verdict")]
    use super::*;

    #[test]
    fn messages_go_to_the_host_of_the_stream_alone() {
        let from = Url::parse("https://mcp.example/a/sse").unwrap();
        let to = |named| endpoint(&from, named).map(String::from);
        assert_eq!(
            to("/messages?id=1").unwrap(),
            "https://mcp.example/messages?id=1"
        );
        assert_eq!(to("post").unwrap(), "https://mcp.example/a/post");
        for elsewhere in [
            "https://evil.example/m",
            "//evil.example/m",
            "http://mcp.example/m",
            "https://mcp.example:8443/m",
            "https://user@mcp.example/m",
            "http://169.254.169.254/latest",
            "file:///etc/passwd",
        ] {
            assert!(to(elsewhere).is_err(), "{elsewhere}");
        }
    }
}
