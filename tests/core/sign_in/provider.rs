//! A server with MCP on `/mcp` that wants a sign-in, and the authorization server for it, in one.
//!
//! It does what the specification says, and misbehaves where its rules say so.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

/// How it behaves. Changed in the middle of a test.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// Replaces members of the server's description.
    pub(crate) resource: Value,
    /// Replaces members of the authorization server's description; `null` removes one.
    pub(crate) issuer: Value,
    /// Neither is described at all.
    pub(crate) undescribed: bool,
    /// Answers to the browser: added to its query instead of a code.
    pub(crate) instead_of_code: Option<&'static str>,
    /// Said of who answers.
    pub(crate) iss: Option<&'static str>,
    /// The place for tokens answers with this status.
    pub(crate) token_status: Option<u16>,
    /// Registers a client with this way to prove itself.
    pub(crate) auth_method: &'static str,
    /// The tool `admin` wants this right.
    pub(crate) wants: &'static str,
    pub(crate) expires_in: Value,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            resource: json!({}),
            issuer: json!({}),
            undescribed: false,
            instead_of_code: None,
            iss: None,
            token_status: None,
            auth_method: "none",
            wants: "admin",
            expires_in: json!(3600),
        }
    }
}

#[derive(Default)]
pub(crate) struct Ledger {
    /// Access tokens that are good, with their rights.
    pub(crate) access: HashMap<String, BTreeSet<String>>,
    /// Tokens that renew others: good ones, and used ones.
    pub(crate) refresh: HashMap<String, bool>,
    /// A used one was used again.
    pub(crate) stolen: bool,
    /// Requests by path, in order, with their form or query.
    pub(crate) seen: Vec<(String, BTreeMap<String, String>)>,
    codes: HashMap<String, BTreeMap<String, String>>,
    clients: HashMap<String, String>,
    number: u32,
}

impl Ledger {
    pub(crate) fn count(&self, path: &str) -> usize {
        self.seen.iter().filter(|(seen, _)| seen == path).count()
    }

    /// Requests for tokens of this kind.
    pub(crate) fn grants(&self, kind: &str) -> usize {
        let is = |form: &BTreeMap<String, String>| {
            form.get("grant_type").is_some_and(|found| found == kind)
        };
        self.seen.iter().filter(|(_, form)| is(form)).count()
    }

    /// What the browser asked for last.
    pub(crate) fn asked(&self) -> BTreeMap<String, String> {
        let last = self.seen.iter().rfind(|(path, _)| path == "/authorize");
        last.unwrap().1.clone()
    }

    fn next(&mut self, kind: &str) -> String {
        self.number += 1;
        format!("{kind}-token-number-{}", self.number)
    }
}

pub(crate) struct Provider {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    _task: AbortOnDropHandle<()>,
}

struct State {
    origin: String,
    rules: Mutex<Rules>,
    ledger: Mutex<Ledger>,
}

struct Request {
    method: String,
    path: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Provider {
    pub(crate) async fn new(rules: Rules) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            origin: format!("http://{address}"),
            rules: Mutex::new(rules),
            ledger: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            let mut connections = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let connection = tokio::spawn(serve(stream, Arc::clone(&shared)));
                connections.push(AbortOnDropHandle::new(connection));
            }
        });
        Self {
            address,
            state,
            _task: AbortOnDropHandle::new(task),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}/mcp", self.state.origin)
    }

    pub(crate) fn rules(&self) -> MutexGuard<'_, Rules> {
        self.state.rules.lock().unwrap()
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.state.ledger.lock().unwrap()
    }

    /// All access tokens end now, whatever was said of them.
    pub(crate) fn expire(&self) {
        self.ledger().access.clear();
    }

    /// Nothing that was given is good any more.
    pub(crate) fn revoke_all(&self) {
        self.ledger().access.clear();
        self.ledger().refresh.clear();
    }
}

async fn serve(stream: TcpStream, state: Arc<State>) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream).await {
        let (status, headers, body) = answer(&state, &request);
        let mut text = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in headers {
            write!(text, "{name}: {value}\r\n").unwrap();
        }
        text.push_str("\r\n");
        text.push_str(&body);
        if stream.get_mut().write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length");
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    Some(Request {
        method,
        path: path.to_owned(),
        query: pairs(query),
        headers,
        body: String::from_utf8(body).unwrap(),
    })
}

fn pairs(text: &str) -> BTreeMap<String, String> {
    form_urlencoded::parse(text.as_bytes())
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect()
}

type Answer = (u16, Vec<(&'static str, String)>, String);

fn as_json(status: u16, body: &Value) -> Answer {
    let kind = vec![("Content-Type", "application/json".to_owned())];
    (status, kind, body.to_string())
}

fn answer(state: &State, request: &Request) -> Answer {
    let rules = state.rules.lock().unwrap().clone();
    let mut ledger = state.ledger.lock().unwrap();
    let form = if request.method == "POST" && request.path != "/mcp" {
        pairs(&request.body)
    } else {
        request.query.clone()
    };
    ledger.seen.push((request.path.clone(), form.clone()));
    let origin = &state.origin;
    match (request.method.as_str(), request.path.as_str()) {
        ("POST", "/mcp") => mcp(&rules, &ledger, origin, request),
        ("GET", "/.well-known/oauth-protected-resource/mcp") if !rules.undescribed => {
            let document = json!({
                "resource": format!("{origin}/mcp"),
                "authorization_servers": [origin],
                "scopes_supported": ["read", "write"],
            });
            as_json(200, &merged(document, &rules.resource))
        }
        ("GET", "/.well-known/oauth-authorization-server") if !rules.undescribed => {
            let document = json!({
                "issuer": origin,
                "authorization_endpoint": format!("{origin}/authorize"),
                "token_endpoint": format!("{origin}/token"),
                "registration_endpoint": format!("{origin}/register"),
                "revocation_endpoint": format!("{origin}/revoke"),
                "code_challenge_methods_supported": ["plain", "S256"],
                "token_endpoint_auth_methods_supported": [rules.auth_method],
            });
            as_json(200, &merged(document, &rules.issuer))
        }
        ("POST", "/register") => register(&rules, &mut ledger, request),
        ("GET", "/authorize") => authorize(&rules, &mut ledger, origin, request),
        ("POST", "/token") => token(&rules, &mut ledger, request, &form),
        ("POST", "/revoke") => {
            ledger.access.remove(&form["token"]);
            ledger.refresh.remove(&form["token"]);
            (200, Vec::new(), String::new())
        }
        _ => (404, Vec::new(), String::new()),
    }
}

fn merged(mut document: Value, changes: &Value) -> Value {
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            document.as_object_mut().unwrap().remove(name);
        } else {
            document[name] = value.clone();
        }
    }
    document
}

fn mcp(rules: &Rules, ledger: &Ledger, origin: &str, request: &Request) -> Answer {
    let token = request.headers.get("authorization");
    let token = token.and_then(|value| value.strip_prefix("Bearer "));
    let Some(rights) = token.and_then(|token| ledger.access.get(token)) else {
        let named = format!(
            "Bearer error=\"invalid_token\", resource_metadata=\"{origin}/.well-known/oauth-protected-resource/mcp\""
        );
        let challenge = if rules.undescribed {
            "Bearer".to_owned()
        } else {
            named
        };
        return (401, vec![("WWW-Authenticate", challenge)], String::new());
    };
    let message: Value = serde_json::from_str(&request.body).unwrap();
    let result = match message["method"].as_str().unwrap() {
        "initialize" => json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "wants a sign-in", "version": "1" },
        }),
        "tools/list" => {
            let tool = |name: &str| json!({ "name": name, "inputSchema": {} });
            json!({ "tools": [tool("echo"), tool("admin")] })
        }
        "tools/call" if message["params"]["name"] == "admin" && !rights.contains(rules.wants) => {
            let challenge = format!(
                "Bearer error=\"insufficient_scope\", scope=\"{}\"",
                rules.wants
            );
            return (403, vec![("WWW-Authenticate", challenge)], String::new());
        }
        "tools/call" => json!({ "content": [{ "type": "text", "text": token }] }),
        _ if message["id"].is_null() => return (202, Vec::new(), String::new()),
        _ => {
            let error = json!({ "code": -32601, "message": "unknown" });
            let body = json!({ "jsonrpc": "2.0", "id": message["id"], "error": error });
            return as_json(200, &body);
        }
    };
    as_json(
        200,
        &json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }),
    )
}

fn register(rules: &Rules, ledger: &mut Ledger, request: &Request) -> Answer {
    let document: Value = serde_json::from_str(&request.body).unwrap();
    let id = ledger.next("client");
    let redirect = document["redirect_uris"][0].as_str().unwrap().to_owned();
    ledger.clients.insert(id.clone(), redirect);
    let mut body = json!({
        "client_id": id,
        "token_endpoint_auth_method": rules.auth_method,
        "redirect_uris": document["redirect_uris"],
    });
    if rules.auth_method != "none" {
        body["client_secret"] = "s3cret of/the client".into();
    }
    as_json(201, &body)
}

fn authorize(rules: &Rules, ledger: &mut Ledger, origin: &str, request: &Request) -> Answer {
    let query = request.query.clone();
    let known = ledger.clients.get(&query["client_id"]);
    let fits = known.is_some_and(|redirect| *redirect == query["redirect_uri"])
        || query["client_id"] == "known-before";
    if !fits || query["response_type"] != "code" || query["code_challenge_method"] != "S256" {
        return (400, Vec::new(), format!("{query:?}"));
    }
    let mut answer: Vec<(&str, String)> = vec![("state", query["state"].clone())];
    if let Some(error) = rules.instead_of_code {
        answer.push(("error", error.to_owned()));
    } else {
        let code = ledger.next("code");
        ledger.codes.insert(code.clone(), query.clone());
        answer.push(("code", code));
    }
    if let Some(iss) = rules.iss {
        answer.push(("iss", iss.replace("ORIGIN", origin)));
    }
    let answer = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(answer)
        .finish();
    let target = format!("{}?{answer}", query["redirect_uri"]);
    (302, vec![("Location", target)], String::new())
}

fn token(
    rules: &Rules,
    ledger: &mut Ledger,
    request: &Request,
    form: &BTreeMap<String, String>,
) -> Answer {
    if let Some(status) = rules.token_status {
        return (status, Vec::new(), "not now".to_owned());
    }
    let refused = |error: &str| {
        as_json(
            400,
            &json!({ "error": error, "error_description": "so it is" }),
        )
    };
    let proof = match rules.auth_method {
        "client_secret_basic" => request.headers.get("authorization").is_some_and(|value| {
            let value = value.strip_prefix("Basic ").unwrap();
            let value = base64::prelude::BASE64_STANDARD.decode(value).unwrap();
            String::from_utf8(value)
                .unwrap()
                .ends_with(":s3cret+of%2Fthe+client")
        }),
        "client_secret_post" => form
            .get("client_secret")
            .is_some_and(|it| it == "s3cret of/the client"),
        _ => form.contains_key("client_id"),
    };
    if !proof {
        return refused("invalid_client");
    }
    let scope = match form["grant_type"].as_str() {
        "authorization_code" => {
            let Some(asked) = ledger.codes.remove(&form["code"]) else {
                return refused("invalid_grant");
            };
            let digest = Sha256::digest(form["code_verifier"].as_bytes());
            if BASE64_URL_SAFE_NO_PAD.encode(digest) != asked["code_challenge"]
                || form["redirect_uri"] != asked["redirect_uri"]
                || form["resource"] != asked["resource"]
            {
                return refused("invalid_request");
            }
            asked.get("scope").cloned().unwrap_or_default()
        }
        _ => match ledger.refresh.get_mut(&form["refresh_token"]) {
            Some(used) if !*used => {
                *used = true;
                "read write".to_owned()
            }
            Some(_) => {
                ledger.stolen = true;
                ledger.access.clear();
                ledger.refresh.clear();
                return refused("invalid_grant");
            }
            None => return refused("invalid_grant"),
        },
    };
    let (access, refresh) = (ledger.next("access"), ledger.next("refresh"));
    let rights = scope.split_whitespace().map(str::to_owned).collect();
    ledger.access.insert(access.clone(), rights);
    ledger.refresh.insert(refresh.clone(), false);
    as_json(
        200,
        &json!({
            "access_token": access, "token_type": "bearer", "refresh_token": refresh,
            "expires_in": rules.expires_in, "scope": scope,
        }),
    )
}
