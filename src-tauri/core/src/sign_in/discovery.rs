//! Who signs people in for a server: the server's description of itself (RFC 9728), then that of its
//! authorization server (RFC 8414, or `OpenID` Connect's).
//!
//! Both are documents of strangers. An address in them is used only as far as [`Web`] lets it.

use reqwest::Url;
use serde::Deserialize;

use super::SignInError;
use super::challenge::Challenge;
use crate::web::{Web, WebError, shown};

/// Authorization servers of one server that are tried.
const SERVERS_MAX: usize = 4;

/// Where to sign in, and how.
#[derive(Debug)]
pub(super) struct Found {
    /// What the token is for, as the authorization server knows it.
    pub(super) resource: String,
    /// All rights that the server knows.
    pub(super) scopes: Option<Vec<String>>,
    pub(super) issuer: String,
    pub(super) authorize: Url,
    pub(super) token: Url,
    pub(super) register: Option<Url>,
    pub(super) revoke: Option<Url>,
    /// How clients may prove who they are.
    pub(super) auth_methods: Option<Vec<String>>,
    /// Takes a client's own document for its registration.
    pub(super) takes_documents: bool,
    /// Names itself when it sends the browser back.
    pub(super) names_itself: bool,
    /// Gives tokens that renew others for this scope.
    pub(super) offline: bool,
    /// Nobody said any of this.
    pub(super) guessed: bool,
}

#[derive(Deserialize)]
struct Description {
    resource: Option<String>,
    #[serde(default)]
    authorization_servers: Vec<String>,
    scopes_supported: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Document {
    issuer: Option<String>,
    authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
    registration_endpoint: Option<String>,
    revocation_endpoint: Option<String>,
    scopes_supported: Option<Vec<String>>,
    code_challenge_methods_supported: Option<Vec<String>>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    client_id_metadata_document_supported: bool,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

/// Find out who signs people in for the server at `server`.
pub(super) async fn find(
    web: &Web,
    server: &Url,
    challenge: &Challenge,
) -> Result<Found, SignInError> {
    let described = described(web, server, challenge).await?;
    let (resource, issuers, scopes) = match described {
        Some(described) => {
            let resource = check_resource(server, described.resource.as_deref())?;
            let issuers = described.authorization_servers;
            (resource, issuers, described.scopes_supported)
        }
        None if challenge.none_needed => {
            return Err(SignInError::NotNeeded {
                server: shown(server),
            });
        }
        None => (canonical(server), Vec::new(), None),
    };
    let without_description = issuers.is_empty();
    let issuers = if without_description {
        // Servers older than these descriptions are their own authorization servers.
        vec![server.origin().ascii_serialization()]
    } else {
        issuers
    };
    let mut last = None;
    for issuer in issuers.iter().take(SERVERS_MAX) {
        match of_issuer(web, issuer, without_description).await {
            Ok(Some(found)) => {
                return Ok(Found {
                    resource,
                    scopes,
                    ..found
                });
            }
            Ok(None) => {
                last.get_or_insert(SignInError::NoSignIn {
                    detail: format!("{issuer} does not say how to sign in there"),
                });
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| SignInError::NoSignIn {
        detail: format!("{} names nobody who signs people in", shown(server)),
    }))
}

/// The server's description of itself; `None`: it has none.
async fn described(
    web: &Web,
    server: &Url,
    challenge: &Challenge,
) -> Result<Option<Description>, SignInError> {
    if let Some(named) = &challenge.resource_metadata {
        let url = server.join(named).map_err(|_| SignInError::Malformed {
            detail: format!("{} names a description that is no address", shown(server)),
        })?;
        let answer = web.get(&url).await?;
        let document = answer.status.is_success().then(|| answer.json()).flatten();
        return document.map(Some).ok_or_else(|| SignInError::Malformed {
            detail: format!(
                "{} holds no description of the server ({})",
                shown(&url),
                answer.status
            ),
        });
    }
    let path = server.path().trim_end_matches('/');
    let mut places = vec![format!("/.well-known/oauth-protected-resource{path}")];
    if !path.is_empty() {
        places.push("/.well-known/oauth-protected-resource".to_owned());
    }
    for place in places {
        let mut url = server.clone();
        url.set_path(&place);
        url.set_query(None);
        url.set_fragment(None);
        let answer = web.get(&url).await?;
        if answer.status.is_success()
            && let Some(document) = answer.json::<Description>()
            && (document.resource.is_some() || !document.authorization_servers.is_empty())
        {
            return Ok(Some(document));
        }
    }
    Ok(None)
}

/// A server that describes another one would have us fetch tokens for that.
fn check_resource(server: &Url, named: Option<&str>) -> Result<String, SignInError> {
    let Some(named) = named else {
        return Ok(canonical(server));
    };
    let fits = Url::parse(named).is_ok_and(|url| {
        let prefix = url.path().trim_end_matches('/');
        let path = server.path();
        url.origin() == server.origin()
            && url.fragment().is_none()
            && path
                .strip_prefix(prefix)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    if fits {
        Ok(named.to_owned())
    } else {
        Err(SignInError::Malformed {
            detail: format!(
                "{} describes itself as {named}, which is another server",
                shown(server)
            ),
        })
    }
}

/// The name of a server for others: its address without what is after it.
pub(super) fn canonical(server: &Url) -> String {
    shown(server).trim_end_matches('/').to_owned()
}

/// `None`: it does not describe itself.
async fn of_issuer(web: &Web, issuer: &str, old: bool) -> Result<Option<Found>, SignInError> {
    let url = Url::parse(issuer).map_err(|_| SignInError::Malformed {
        detail: format!("`{issuer}`, which is to sign you in, is no address"),
    })?;
    web.check(&url)?;
    let path = url.path().trim_end_matches('/');
    let mut places = vec![
        format!("/.well-known/oauth-authorization-server{path}"),
        format!("/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        places.push(format!("{path}/.well-known/openid-configuration"));
    }
    let mut unreachable = None;
    for place in places {
        let mut at = url.clone();
        at.set_path(&place);
        at.set_query(None);
        let answer = match web.get(&at).await {
            Ok(answer) => answer,
            Err(error @ (WebError::Unreachable(_) | WebError::TooLong(_))) => {
                unreachable = Some(error);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if answer.status.is_success()
            && let Some(document) = answer.json::<Document>()
        {
            return read(web, issuer, document, old).map(Some);
        }
        if answer.status.is_server_error() {
            unreachable = Some(WebError::Unreachable(format!(
                "{} answered {}",
                shown(&at),
                answer.status
            )));
        }
    }
    match unreachable {
        Some(error) => Err(error.into()),
        None => Ok(old.then(|| at_old_places(&url))),
    }
}

fn read(web: &Web, issuer: &str, document: Document, old: bool) -> Result<Found, SignInError> {
    let malformed = |detail: String| SignInError::Malformed { detail };
    let bare = |text: &str| text.trim_end_matches('/').to_owned();
    // Whoever may put a document there must not speak for another one.
    match &document.issuer {
        Some(named) if bare(named) == bare(issuer) => {}
        Some(_) | None if old => {}
        Some(named) => {
            return Err(malformed(format!(
                "the description of {issuer} is that of {named}"
            )));
        }
        None => {
            return Err(malformed(format!(
                "the description of {issuer} names nobody"
            )));
        }
    }
    let s256 = document
        .code_challenge_methods_supported
        .as_ref()
        .is_some_and(|methods| methods.iter().any(|method| method == "S256"));
    let silent = document.code_challenge_methods_supported.is_none();
    if !s256 && (!old || !silent) {
        return Err(SignInError::NoPkce {
            issuer: issuer.to_owned(),
        });
    }
    let address = |what: &str, text: Option<String>| -> Result<Option<Url>, SignInError> {
        let Some(text) = text else { return Ok(None) };
        let url = Url::parse(&text)
            .map_err(|_| malformed(format!("the {what} of {issuer} is no address: {text}")))?;
        web.check(&url)?;
        Ok(Some(url))
    };
    let needed = |what: &str, url: Option<Url>| {
        url.ok_or_else(|| malformed(format!("{issuer} names no {what}")))
    };
    let authorize = address("sign-in page", document.authorization_endpoint)?;
    let token = address("place for tokens", document.token_endpoint)?;
    let offline = document
        .scopes_supported
        .iter()
        .flatten()
        .any(|scope| scope == "offline_access");
    Ok(Found {
        resource: String::new(),
        scopes: None,
        issuer: document.issuer.unwrap_or_else(|| issuer.to_owned()),
        authorize: needed("sign-in page", authorize)?,
        token: needed("place for tokens", token)?,
        register: address("place for registrations", document.registration_endpoint)?,
        revoke: address("place for revocations", document.revocation_endpoint)?,
        auth_methods: document.token_endpoint_auth_methods_supported,
        takes_documents: document.client_id_metadata_document_supported,
        names_itself: document.authorization_response_iss_parameter_supported,
        offline,
        guessed: false,
    })
}

/// The first revision with sign-in had fixed places for a server that describes nothing. Whether
/// this one has them shows when they are used.
fn at_old_places(server: &Url) -> Found {
    let at = |path: &str| {
        let mut url = server.clone();
        url.set_path(path);
        url.set_query(None);
        url
    };
    Found {
        resource: String::new(),
        scopes: None,
        issuer: server.origin().ascii_serialization(),
        authorize: at("/authorize"),
        token: at("/token"),
        register: Some(at("/register")),
        revoke: None,
        auth_methods: None,
        takes_documents: false,
        names_itself: false,
        offline: false,
        guessed: true,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is a test's verdict")]
    use super::*;

    #[test]
    fn a_server_describes_itself_or_what_it_is_a_part_of() {
        let server = Url::parse("https://a.example/team/mcp?x=1").unwrap();
        let check = |named: &str| check_resource(&server, Some(named));
        for fits in [
            "https://a.example/team/mcp",
            "https://a.example/team/",
            "https://a.example",
        ] {
            assert_eq!(check(fits).unwrap(), fits);
        }
        for other in [
            "https://b.example/team/mcp",
            "https://a.example/team/mcp2",
            "https://a.example/te",
            "http://a.example/team/mcp",
            "https://a.example:444/team/mcp",
            "mcp",
        ] {
            assert!(check(other).is_err(), "{other}");
        }
        assert_eq!(canonical(&server), "https://a.example/team/mcp");
    }
}
