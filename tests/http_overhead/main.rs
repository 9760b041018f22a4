//! What a call over HTTP costs above the bare exchange that it is and above rmcp's own client, and
//! whether many go together: one server of our own on loopback, and the clients in turns. Prints one
//! JSON object.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a program for measuring; what goes wrong ends it"
)]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rmcp::model::{CallToolRequestParams, ClientConfig, ProtocolVersion};
use rmcp::service::{RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientLifecycleMode, ClientServiceExt as _};
use runbridge_core::catalog::{Catalog, CatalogConfig};
use runbridge_core::clients::entry::{Entry, EntryTransport, Lent};
use runbridge_core::secrets::Secrets;
use runbridge_core::sign_in::SignIns;
use runbridge_core::upstream::UpstreamLimits;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;

const CALLS: usize = 1_000;
const TOGETHER: usize = 200;

/// How long a slow call takes at the server.
const SLOW: Duration = Duration::from_millis(50);

/// The last request as it came, to be sent again without a client.
type Last = Arc<Mutex<Vec<u8>>>;

#[tokio::main]
async fn main() {
    let last = Last::default();
    let address = serve(&last).await;
    let catalog = catalog(address).await;
    let rmcp = rmcp_client(address).await;
    let arguments = || Map::from_iter([("text".to_owned(), json!("fine"))]);
    let call = async |tool: &str| {
        let result = catalog.call("peer", tool, arguments(), None).await;
        result.unwrap();
    };
    let call_by_rmcp = async || {
        let params = CallToolRequestParams::new("echo").with_arguments(arguments());
        rmcp.call_tool(params).await.unwrap();
    };
    for _ in 0..50 {
        call_by_rmcp().await;
        call("echo").await;
    }
    let request = last.lock().unwrap().clone();
    let mut bare = BufReader::new(TcpStream::connect(address).await.unwrap());
    bare.get_ref().set_nodelay(true).unwrap();
    let (mut ours, mut rmcps, mut bares) = (Vec::new(), Vec::new(), Vec::new());
    // In turns, so that what else the machine does falls on both alike.
    for _ in 0..CALLS {
        let begun = Instant::now();
        call("echo").await;
        ours.push(begun.elapsed());
        let begun = Instant::now();
        call_by_rmcp().await;
        rmcps.push(begun.elapsed());
        let begun = Instant::now();
        exchange(&mut bare, &request).await;
        bares.push(begun.elapsed());
    }
    let begun = Instant::now();
    join_all((0..TOGETHER).map(|_| call("slow"))).await;
    let together = begun.elapsed();
    catalog.shut_down().await;
    rmcp.cancel().await.unwrap();
    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    let [ours, rmcps, bares] = [ours, rmcps, bares].map(|times| milliseconds(median(times)));
    println!(
        "{}",
        json!({
            "above_bare": ours - bares,
            "above_rmcp": ours - rmcps,
            "together": milliseconds(together),
        })
    );
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// One request and its answer, with nothing around them.
async fn exchange(stream: &mut BufReader<TcpStream>, request: &[u8]) {
    stream.get_mut().write_all(request).await.unwrap();
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        if let Some(value) = line.to_lowercase().strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
}

/// In the revision that ours speaks with this server.
async fn rmcp_client(address: SocketAddr) -> RunningService<RoleClient, ClientConfig> {
    // Its client wants one even where nothing is encrypted.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let transport = StreamableHttpClientTransport::from_uri(format!("http://{address}/mcp"));
    let lifecycle = ClientLifecycleMode::Discover {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
    };
    let client = ClientConfig::default();
    client
        .serve_with_lifecycle(transport, lifecycle)
        .await
        .unwrap()
}

async fn catalog(address: SocketAddr) -> Arc<Catalog> {
    let (events, _) = broadcast::channel(16);
    let catalog = Catalog::new(CatalogConfig {
        limits: UpstreamLimits::default(),
        cache_dir: None,
        login_env: BTreeMap::new().into(),
        sign_ins: SignIns::new(Secrets::in_memory(), BTreeMap::new().into(), None),
        events,
    });
    let entry = Entry {
        name: "peer".to_owned(),
        transport: EntryTransport::Http {
            url: format!("http://{address}/mcp"),
            headers: BTreeMap::new(),
            sse: false,
        },
        description: None,
        off: None,
        needs: Vec::new(),
        tools_allowed: None,
        tools_denied: Vec::new(),
        start_ms_max: None,
        call_ms_max: None,
        lent: Lent::default(),
        sources: Vec::new(),
    };
    catalog.set_entries(vec![entry]).await;
    catalog
}

async fn serve(last: &Last) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let last = Arc::clone(last);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).unwrap();
            let last = Arc::clone(&last);
            let service = service_fn(move |request| answer(request, Arc::clone(&last)));
            let connection = hyper::server::conn::http1::Builder::new();
            tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

async fn answer(
    request: Request<Incoming>,
    last: Last,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let result = match message["method"].as_str() {
        Some("server/discover") => json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 0,
            "cacheScope": "private", "capabilities": { "tools": {} },
        }),
        Some("tools/list") => {
            let tools = ["echo", "slow"]
                .map(|name| json!({ "name": name, "inputSchema": { "type": "object" } }));
            json!({
                "resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": tools,
            })
        }
        _ => {
            if message["params"]["name"] == "slow" {
                tokio::time::sleep(SLOW).await;
            }
            let mut raw = format!("{} {} HTTP/1.1\r\n", head.method, head.uri).into_bytes();
            for (name, value) in &head.headers {
                raw.extend_from_slice(name.as_str().as_bytes());
                raw.extend_from_slice(b": ");
                raw.extend_from_slice(value.as_bytes());
                raw.extend_from_slice(b"\r\n");
            }
            raw.extend_from_slice(b"\r\n");
            raw.extend_from_slice(&body);
            *last.lock().unwrap() = raw;
            json!({ "resultType": "complete", "content": [{ "type": "text", "text": "fine" }] })
        }
    };
    let text = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }).to_string();
    let mut response = Response::new(Full::new(Bytes::from(text)));
    let kind = hyper::header::HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(hyper::header::CONTENT_TYPE, kind);
    Ok(response)
}
