//! HTTP as this user's system wants it, and the bounds on where it may go.
//!
//! Proxies and certificates come from the user's environment or the system. What other programs name
//! as an address, a sign-in server for example, is only reached if it could not be a way into the
//! user's own machine or network: that needs an address which the user wrote. It does not know what
//! is asked for.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use reqwest::header::{HeaderMap, LOCATION};
use reqwest::{Client, ClientBuilder, Method, NoProxy, Proxy, Response, StatusCode, Url};
use tokio::time::timeout;

/// TCP and TLS together.
pub(crate) const CONNECT: Duration = Duration::from_secs(10);

/// Idle connections are closed before the common server does it (Node's default is 5 s): a request
/// written into a connection that is being closed is lost, and must not be repeated.
const IDLE_CONNECTION: Duration = Duration::from_secs(4);

/// A peer that is gone without a word shows within a few of these.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// One question with its whole answer: a document or a token; the longest known have some kilobytes.
const EXCHANGE: Bounds = Bounds {
    within: Duration::from_secs(15),
    bytes_max: 512 * 1024,
};

/// A name is resolved within this.
const RESOLVE: Duration = Duration::from_secs(5);

/// Redirects followed for one question, all on the same origin.
const REDIRECTS_MAX: usize = 3;

/// Why an address is not reached.
const INSIDE: &str =
    "is inside your own machine or network, and a server elsewhere may not send Runbridge there";

/// A client for `url` as the user's system wants it, to be finished by whoever asked. It reads the
/// system's certificates, which blocks.
pub(crate) fn builder(
    url: &Url,
    login: &BTreeMap<String, String>,
) -> Result<ClientBuilder, String> {
    // The first provider of the process stays; another one would do as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .user_agent(concat!("runbridge/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .connect_timeout(CONNECT)
        .tcp_keepalive(KEEPALIVE)
        .tcp_nodelay(true)
        .pool_idle_timeout(IDLE_CONNECTION);
    if is_own_machine(url) {
        // No proxy can reach it.
        builder = builder.no_proxy();
    } else {
        for proxy in proxies(login)? {
            builder = builder.proxy(proxy);
        }
    }
    if let Some(file) = variable(login, "SSL_CERT_FILE")
        && let Ok(pem) = std::fs::read(file)
        && let Ok(certificates) = reqwest::Certificate::from_pem_bundle(&pem)
    {
        builder = builder.tls_certs_merge(certificates);
    }
    Ok(builder)
}

/// The proxies of the user's environment; with none there, those of the system's settings are used.
fn proxies(login: &BTreeMap<String, String>) -> Result<Vec<Proxy>, String> {
    let except = variable(login, "NO_PROXY").and_then(NoProxy::from_string);
    let mut proxies = Vec::new();
    for name in ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"] {
        if let Some(url) = variable(login, name) {
            let proxy = match name {
                "HTTPS_PROXY" => Proxy::https(url),
                "HTTP_PROXY" => Proxy::http(url),
                _ => Proxy::all(url),
            };
            let proxy = proxy.map_err(|error| {
                format!(
                    "the proxy that {name} names cannot be used: {}",
                    root(&error)
                )
            })?;
            proxies.push(proxy.no_proxy(except.clone()));
        }
    }
    Ok(proxies)
}

fn variable<'a>(env: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    env.get(&name.to_lowercase())
        .or_else(|| env.get(name))
        .map(String::as_str)
        .filter(|value| !value.is_empty())
}

pub(crate) fn is_own_machine(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    host == "localhost"
        || host.ends_with(".localhost")
        || literal(url).is_some_and(|ip| ip.is_loopback())
}

/// The address that stands in the URL instead of a name.
fn literal(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    let address = host.trim_start_matches('[').trim_end_matches(']');
    address.parse().ok()
}

/// Tokens travel in queries and before the host; neither belongs on a screen.
pub(crate) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.into()
}

type Cause<'a> = &'a (dyn std::error::Error + 'static);

pub(crate) fn causes(error: &reqwest::Error) -> impl Iterator<Item = Cause<'_>> {
    fn next<'a>(cause: &Cause<'a>) -> Option<Cause<'a>> {
        (**cause).source()
    }
    std::iter::successors(std::error::Error::source(error), next)
}

/// The innermost cause: the outer ones only say that there was an error.
pub(crate) fn root(error: &reqwest::Error) -> String {
    causes(error)
        .last()
        .map_or_else(|| error.to_string(), ToString::to_string)
}

/// What part of the world an address is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The user's machine.
    Own,
    /// The user's network.
    Near,
    /// Everybody's.
    Public,
    /// Neither: link-local addresses, where machines tell of themselves, and what is no host.
    Nowhere,
}

impl Reach {
    fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => Self::of_v4(ip),
            IpAddr::V6(ip) => Self::of_v6(ip),
        }
    }

    fn of_v4(ip: Ipv4Addr) -> Self {
        let [a, b, ..] = ip.octets();
        if ip.is_loopback() {
            Self::Own
        } else if ip.is_private() || a == 100 && (64..128).contains(&b) {
            Self::Near
        } else if ip.is_link_local() || a == 0 || a >= 224 {
            Self::Nowhere
        } else {
            Self::Public
        }
    }

    fn of_v6(ip: Ipv6Addr) -> Self {
        let parts = ip.segments();
        // An address of the older kind in the clothes of the newer one.
        let embedded = match parts {
            [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
                Some((parts[6], parts[7]))
            }
            [0x2002, high, low, ..] => Some((high, low)),
            _ => None,
        };
        if let Some((high, low)) = embedded {
            return Self::of_v4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)));
        }
        if ip.is_loopback() {
            Self::Own
        } else if parts[0] & 0xfe00 == 0xfc00 {
            Self::Near
        } else if ip.is_unspecified() || parts[0] & 0xffc0 == 0xfe80 || parts[0] & 0xff00 == 0xff00
        {
            Self::Nowhere
        } else {
            Self::Public
        }
    }

    /// Of the user's own entry. A name that nobody knows is taken for one of the net.
    async fn of_entry(url: &Url) -> Self {
        if is_own_machine(url) {
            return Self::Own;
        }
        match resolve(url).await.as_deref() {
            Some([first, ..]) => Self::of(first.ip()),
            Some([]) | None => Self::Public,
        }
    }

    /// Whether someone whom the user reaches here may send us there.
    fn may_name(self, other: Self) -> bool {
        match other {
            Self::Public => true,
            Self::Own | Self::Near => self == other,
            Self::Nowhere => false,
        }
    }
}

async fn resolve(url: &Url) -> Option<Vec<SocketAddr>> {
    let port = url.port_or_known_default()?;
    if let Some(ip) = literal(url) {
        return Some(vec![SocketAddr::new(ip, port)]);
    }
    let host = url.host_str()?.to_owned();
    let found = timeout(RESOLVE, tokio::net::lookup_host((host, port))).await;
    Some(found.ok()?.ok()?.collect())
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WebError {
    /// It is not asked: the address is none that may be named to us.
    #[error("{0}")]
    Forbidden(String),
    /// It did not answer, or not in time.
    #[error("{0}")]
    Unreachable(String),
    /// Its answer has more bytes than were wanted.
    #[error("{0}")]
    TooLong(String),
}

/// What one question may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) within: Duration,
    /// Of the answer.
    pub(crate) bytes_max: usize,
}

/// The whole of an answer, and where it came from.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) url: Url,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// The status and the body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json<T: serde::de::DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.body).ok()
    }
}

/// Asks addresses that others named, on behalf of an entry of the user's.
pub(crate) struct Web {
    entry: Url,
    reach: Reach,
    login: BTreeMap<String, String>,
}

impl Web {
    pub(crate) async fn on_behalf_of(entry: &Url, login: &BTreeMap<String, String>) -> Self {
        Self {
            reach: Reach::of_entry(entry).await,
            entry: entry.clone(),
            login: login.clone(),
        }
    }

    /// Whether the address may be opened, here or in a browser, as far as it says by itself.
    pub(crate) fn check(&self, url: &Url) -> Result<(), WebError> {
        let forbidden = |why: &str| Err(WebError::Forbidden(format!("{} {why}", shown(url))));
        let same_host = url.host() == self.entry.host();
        match url.scheme() {
            "https" => {}
            "http" if same_host && self.entry.scheme() == "http" => {}
            "http" if is_own_machine(url) && self.reach == Reach::Own => {}
            "http" => return forbidden("is not encrypted (http), which it must be"),
            _ => return forbidden("is no web address (https)"),
        }
        if url.host_str().is_none() || !url.username().is_empty() || url.password().is_some() {
            return forbidden("is no address that a server may name");
        }
        let reach = if is_own_machine(url) {
            Some(Reach::Own)
        } else {
            literal(url).map(Reach::of)
        };
        match reach {
            Some(reach) if !same_host && !self.reach.may_name(reach) => forbidden(INSIDE),
            _ => Ok(()),
        }
    }

    /// Of the addresses behind a name, those that may be reached.
    fn judge(&self, url: &Url, found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, WebError> {
        if url.host() == self.entry.host() || found.is_empty() {
            return Ok(found);
        }
        let may = |address: &SocketAddr| self.reach.may_name(Reach::of(address.ip()));
        let allowed: Vec<_> = found.into_iter().filter(may).collect();
        if allowed.is_empty() {
            return Err(WebError::Forbidden(format!("{} {INSIDE}", shown(url))));
        }
        Ok(allowed)
    }

    pub(crate) async fn get(&self, url: &Url) -> Result<Answer, WebError> {
        let accept = HeaderMap::from_iter([(
            reqwest::header::ACCEPT,
            reqwest::header::HeaderValue::from_static("application/json"),
        )]);
        let Fetched { status, body, .. } = self.fetch(url, accept, EXCHANGE, &mut |_| {}).await?;
        Ok(Answer { status, body })
    }

    /// Ask for something that may be large. `heard` is told how many bytes have come.
    pub(crate) async fn fetch(
        &self,
        url: &Url,
        headers: HeaderMap,
        bounds: Bounds,
        heard: &mut (dyn FnMut(u64) + Send),
    ) -> Result<Fetched, WebError> {
        let mut url = url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let sent = self.send(Method::GET, &url, headers.clone(), String::new(), bounds);
            let response = sent.await?;
            if response.status().is_redirection() {
                let target = response.headers().get(LOCATION);
                let target = target
                    .and_then(|target| target.to_str().ok())
                    .and_then(|target| url.join(target).ok());
                if let Some(target) = target.filter(|target| target.origin() == url.origin()) {
                    url = target;
                    continue;
                }
            }
            return Ok(Fetched {
                status: response.status(),
                headers: response.headers().clone(),
                body: body(&url, response, bounds, heard).await?,
                url,
            });
        }
        Err(WebError::Unreachable(format!(
            "{} redirects more than {REDIRECTS_MAX} times",
            shown(&url)
        )))
    }

    pub(crate) async fn post(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: String,
    ) -> Result<Answer, WebError> {
        // A redirect would take the secrets in the body elsewhere.
        let response = self
            .send(Method::POST, url, headers, body, EXCHANGE)
            .await?;
        Ok(Answer {
            status: response.status(),
            body: self::body(url, response, EXCHANGE, &mut |_| {}).await?,
        })
    }

    async fn send(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: String,
        bounds: Bounds,
    ) -> Result<Response, WebError> {
        self.check(url)?;
        // Each question has a client of its own, bound to the addresses that were looked at: a name
        // that is resolved twice may mean two machines.
        let found = self.judge(url, resolve(url).await.unwrap_or_default())?;
        let (login, target) = (self.login.clone(), url.clone());
        let client = tokio::task::spawn_blocking(move || {
            let mut builder = builder(&target, &login)?.timeout(bounds.within);
            // Where a proxy resolves names, ours are not used; elsewhere no name without an address.
            if literal(&target).is_none()
                && let Some(host) = target.host_str()
            {
                builder = builder.resolve_to_addrs(host, &found);
            }
            builder.build().map_err(|error| root(&error))
        });
        let client = client
            .await
            .map_err(|error| WebError::Unreachable(error.to_string()))?
            .map_err(|error| WebError::Unreachable(format!("no HTTP client: {error}")))?;
        let sent = client
            .request(method, url.clone())
            .headers(headers)
            .body(body)
            .send();
        sent.await.map_err(|error| unreachable(url, &error, bounds))
    }
}

/// The deadline of the exchange covers the body.
async fn body(
    url: &Url,
    mut response: Response,
    bounds: Bounds,
    heard: &mut (dyn FnMut(u64) + Send),
) -> Result<Vec<u8>, WebError> {
    let mut body = Vec::new();
    while let Some(piece) = response
        .chunk()
        .await
        .map_err(|error| unreachable(url, &error, bounds))?
    {
        if body.len() + piece.len() > bounds.bytes_max {
            return Err(WebError::TooLong(format!(
                "{} answered with more than {} bytes",
                shown(url),
                bounds.bytes_max
            )));
        }
        body.extend_from_slice(&piece);
        heard(body.len() as u64);
    }
    Ok(body)
}

fn unreachable(url: &Url, error: &reqwest::Error, bounds: Bounds) -> WebError {
    let at = shown(url);
    WebError::Unreachable(if error.is_timeout() {
        format!("{at} did not answer within {} s", bounds.within.as_secs())
    } else {
        format!("{at} cannot be reached: {}", root(error))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is a test's verdict")]
    use super::*;

    #[test]
    fn addresses_are_told_apart_in_all_their_clothes() {
        for (text, reach) in [
            ("127.0.0.1", Reach::Own),
            ("127.9.9.9", Reach::Own),
            ("::1", Reach::Own),
            ("::ffff:127.0.0.1", Reach::Own),
            ("10.1.2.3", Reach::Near),
            ("172.16.0.1", Reach::Near),
            ("192.168.1.1", Reach::Near),
            ("100.64.0.1", Reach::Near),
            ("fd00::1", Reach::Near),
            ("64:ff9b::a01:203", Reach::Near),
            ("2002:a01:203::1", Reach::Near),
            ("169.254.169.254", Reach::Nowhere),
            ("::ffff:169.254.169.254", Reach::Nowhere),
            ("fe80::1", Reach::Nowhere),
            ("0.0.0.0", Reach::Nowhere),
            ("::", Reach::Nowhere),
            ("224.0.0.1", Reach::Nowhere),
            ("255.255.255.255", Reach::Nowhere),
            ("93.184.216.34", Reach::Public),
            ("2606:2800::1", Reach::Public),
        ] {
            assert_eq!(Reach::of(text.parse().unwrap()), reach, "{text}");
        }
    }

    fn web(entry: &str, reach: Reach) -> Web {
        Web {
            entry: Url::parse(entry).unwrap(),
            reach,
            login: BTreeMap::new(),
        }
    }

    #[test]
    fn a_server_of_the_net_names_addresses_of_the_net_alone() {
        let far = web("https://mcp.example.com/mcp", Reach::Public);
        let own = web("http://127.0.0.1:3000/mcp", Reach::Own);
        let near = web("http://10.0.0.5/mcp", Reach::Near);
        let may = |web: &Web, url: &str| web.check(&Url::parse(url).unwrap()).is_ok();
        for url in [
            "http://auth.example.com/",
            "https://localhost/",
            "https://127.1.2.3/",
            "https://10.0.0.1/",
            "https://169.254.169.254/latest",
            "https://[::ffff:10.0.0.1]/",
            "https://user@auth.example.com/",
            "file:///etc/passwd",
            "javascript:alert(1)",
        ] {
            assert!(!may(&far, url), "{url}");
        }
        assert!(may(&far, "https://auth.example.com/authorize"));
        assert!(may(&own, "http://localhost:3001/authorize"));
        assert!(may(&own, "https://auth.example.com/"));
        assert!(!may(&own, "https://10.0.0.1/"));
        assert!(may(&near, "http://10.0.0.5:9000/authorize"));
        assert!(may(&near, "https://10.0.0.6/authorize"));
        assert!(!may(&near, "http://localhost:3001/"));
    }

    #[test]
    fn a_name_is_judged_by_the_addresses_behind_it() {
        let far = web("https://mcp.example.com/mcp", Reach::Public);
        let url = Url::parse("https://auth.example.com/token").unwrap();
        let behind = |list: &[&str]| {
            let list = list.iter().map(|one| one.parse().unwrap()).collect();
            far.judge(&url, list).map(|allowed| allowed.len())
        };
        assert_eq!(behind(&["93.184.216.34:443"]), Ok(1));
        assert_eq!(behind(&["127.0.0.1:443", "93.184.216.34:443"]), Ok(1));
        assert!(behind(&["127.0.0.1:443", "[::1]:443", "169.254.169.254:443"]).is_err());
    }
}
