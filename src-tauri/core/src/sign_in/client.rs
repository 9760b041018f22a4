//! Who Runbridge is to an authorization server: a client that the user registered, a document that
//! describes one, or a registration that we make ourselves.

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::discovery::Found;
use super::tokens::unix_now;
use super::{SignInError, cut};
use crate::secrets::Secret;
use crate::web::Web;

/// How a client proves that it is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Proof {
    /// Not at all: a program on people's machines keeps no secret.
    None,
    /// In a header.
    Basic,
    /// In the body.
    Post,
}

impl Proof {
    fn read(text: &str) -> Option<Self> {
        match text {
            "none" => Some(Self::None),
            "client_secret_basic" => Some(Self::Basic),
            "client_secret_post" => Some(Self::Post),
            _ => None,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Basic => "client_secret_basic",
            Self::Post => "client_secret_post",
        }
    }

    /// The best of those that the server takes; it has its say when it says nothing too.
    fn with_secret(found: &Found) -> Self {
        let Some(methods) = &found.auth_methods else {
            return Self::Basic;
        };
        let offered = |proof: Self| methods.iter().any(|method| method == proof.as_str());
        if !offered(Self::Basic) && offered(Self::Post) {
            Self::Post
        } else {
            Self::Basic
        }
    }

    fn of_registration(found: &Found) -> Self {
        let Some(methods) = &found.auth_methods else {
            return Self::None;
        };
        let known = methods.iter().filter_map(|method| Self::read(method));
        let known: Vec<_> = known.collect();
        if known.contains(&Self::None) || known.is_empty() {
            Self::None
        } else {
            known[0]
        }
    }
}

/// A client as one authorization server knows it.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Client {
    pub(super) id: String,
    pub(super) secret: Option<String>,
    pub(super) proof: Proof,
    /// The only one that the server sends browsers back to; `None`: any.
    pub(super) port: Option<u16>,
    /// We registered it, and can do so again.
    pub(super) registered: bool,
    /// Of the secret, in seconds since 1970.
    pub(super) expires_at: Option<u64>,
}

/// What the user's settings say of the client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientSettings {
    /// The identifier of a client that the user registered.
    pub client_id: Option<String>,
    /// Its secret; it may be a `keyring:` reference.
    pub client_secret: Option<Secret>,
    /// The address of a document that describes the client.
    pub client_metadata_url: Option<String>,
    /// The port that the browser is sent back to, where the registration names one.
    pub redirect_port: Option<u16>,
    /// The rights to ask for; none: those that the server names.
    pub scopes: Vec<String>,
}

/// The client to sign in with, if there is no need to register one.
pub(super) fn known(
    settings: &ClientSettings,
    secret: Option<String>,
    found: &Found,
    before: Option<&Client>,
) -> Option<Client> {
    if let Some(id) = &settings.client_id {
        return Some(Client {
            id: id.clone(),
            proof: if secret.is_some() {
                Proof::with_secret(found)
            } else {
                Proof::None
            },
            secret,
            port: settings.redirect_port,
            registered: false,
            expires_at: None,
        });
    }
    if found.takes_documents
        && let Some(url) = &settings.client_metadata_url
    {
        return Some(Client {
            id: url.clone(),
            secret: None,
            proof: Proof::None,
            port: settings.redirect_port,
            registered: false,
            expires_at: None,
        });
    }
    let lasts = |client: &&Client| {
        client.registered && client.expires_at.is_none_or(|at| at > unix_now() + 60)
    };
    before.filter(lasts).cloned()
}

/// Register a client whose browser comes back to `redirect` on `port`.
pub(super) async fn register(
    web: &Web,
    found: &Found,
    redirect: &str,
    port: u16,
    scope: Option<&str>,
) -> Result<Client, SignInError> {
    #[derive(Deserialize)]
    struct Registered {
        client_id: String,
        client_secret: Option<String>,
        client_secret_expires_at: Option<u64>,
        token_endpoint_auth_method: Option<String>,
    }

    let Some(url) = &found.register else {
        return Err(SignInError::NoClient {
            issuer: found.issuer.clone(),
        });
    };
    let proof = Proof::of_registration(found);
    let mut document = json!({
        "client_name": "Runbridge",
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": proof.as_str(),
        "application_type": "native",
    });
    if let Some(scope) = scope {
        document["scope"] = scope.into();
    }
    let json = HeaderValue::from_static("application/json");
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, json)]);
    let answer = web.post(url, headers, document.to_string()).await?;
    if !answer.status.is_success() {
        if found.guessed && matches!(answer.status.as_u16(), 404 | 405) {
            return Err(SignInError::NoSignIn {
                detail: format!("{} does not say where to sign in", found.issuer),
            });
        }
        return Err(SignInError::Registration {
            issuer: found.issuer.clone(),
            detail: refused(&answer.body).unwrap_or_else(|| answer.status.to_string()),
        });
    }
    let registered: Registered = answer.json().ok_or_else(|| SignInError::Malformed {
        detail: format!("{} registered Runbridge under no name", found.issuer),
    })?;
    let given = registered.token_endpoint_auth_method.as_deref();
    let proof = match (&registered.client_secret, given.and_then(Proof::read)) {
        (None, _) => Proof::None,
        (Some(_), Some(given)) => given,
        (Some(_), None) if proof == Proof::None => Proof::with_secret(found),
        (Some(_), None) => proof,
    };
    Ok(Client {
        id: registered.client_id,
        secret: registered.client_secret,
        proof,
        port: Some(port),
        registered: true,
        expires_at: registered.client_secret_expires_at.filter(|at| *at > 0),
    })
}

/// What a refusing answer says, as RFC 6749 has it.
pub(super) fn refused(body: &[u8]) -> Option<String> {
    let refusal = Refusal::read(body)?;
    Some(match refusal.error_description {
        Some(words) => format!("{} ({})", cut(&words), cut(&refusal.error)),
        None => cut(&refusal.error),
    })
}

/// An error of an authorization server.
#[derive(Deserialize)]
pub(super) struct Refusal {
    pub(super) error: String,
    pub(super) error_description: Option<String>,
}

impl Refusal {
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }
}

/// `key=value&…`, as forms are sent.
pub(super) fn form(pairs: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new())
        .extend_pairs(pairs)
        .finish()
}
