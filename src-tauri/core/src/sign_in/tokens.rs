//! Tokens: got for a code, renewed, revoked, and kept as one secret for each server.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::Url;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::SignInError;
use super::client::{Client, Proof, Refusal, form, refused};
use crate::secrets::{Secret, Secrets, SecretsError};
use crate::web::{Answer, Web, shown};

/// A token is renewed this long before it ends, or a tenth of its life if that is less.
const RENEW_BEFORE: Duration = Duration::from_mins(1);

/// All that is kept of one sign-in.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Kept {
    /// The server that it is for. Its tokens go nowhere else.
    pub(super) server: String,
    /// What the token is for, as the authorization server knows it.
    pub(super) resource: String,
    pub(super) issuer: String,
    pub(super) token: String,
    pub(super) revoke: Option<String>,
    pub(super) client: Client,
    /// `None`: signed out, and the registration may serve once more.
    pub(super) tokens: Option<Tokens>,
    /// Rights that the server asked for since.
    pub(super) wanted: Option<String>,
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Tokens {
    pub(super) access: String,
    pub(super) refresh: Option<String>,
    /// When it is to be renewed, in seconds since 1970 by this machine's clock. A clock that is set
    /// makes this wrong, and then the server's refusal says so.
    pub(super) renew_at: Option<u64>,
    pub(super) scope: Option<String>,
}

impl Kept {
    /// The name of the secret: the host for people, the hash for us.
    pub(super) fn secret_name(server: &str) -> String {
        let host = Url::parse(server)
            .ok()
            .and_then(|url| url.host_str().map(str::to_owned))
            .unwrap_or_default();
        let host: String = host.chars().take(100).collect();
        let hash = Sha256::digest(server.as_bytes());
        let hash = hash[..8]
            .iter()
            .fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        format!("sign-in to {host} {hash:016x}")
    }

    pub(super) async fn load(
        secrets: &Secrets,
        server: &str,
    ) -> Result<Option<Self>, SecretsError> {
        let Some(text) = secrets.get(&Self::secret_name(server)).await? else {
            return Ok(None);
        };
        // One that a newer version wrote is none to us; signing in again replaces it.
        let kept: Option<Self> = serde_json::from_str(text.expose()).ok();
        let kept = kept.filter(|kept| kept.server == server);
        if let Some(kept) = &kept {
            kept.know(secrets);
        }
        Ok(kept)
    }

    pub(super) async fn save(&self, secrets: &Secrets) -> Result<(), SecretsError> {
        self.know(secrets);
        let text = serde_json::to_string(self).unwrap_or_default();
        let name = Self::secret_name(&self.server);
        secrets.set(&name, Secret::new(text)).await
    }

    /// Each by itself, so that it is taken out wherever it appears.
    fn know(&self, secrets: &Secrets) {
        if let Some(secret) = &self.client.secret {
            secrets.know(&Secret::new(secret.clone()));
        }
        if let Some(tokens) = &self.tokens {
            secrets.know(&Secret::new(tokens.access.clone()));
            if let Some(refresh) = &tokens.refresh {
                secrets.know(&Secret::new(refresh.clone()));
            }
        }
    }
}

impl Tokens {
    pub(super) fn is_due(&self) -> bool {
        self.renew_at.is_some_and(|at| unix_now() >= at)
    }
}

/// Why a token could not be renewed.
#[derive(Clone)]
pub(super) enum NotRenewed {
    /// The authorization server does not know the sign-in any more, or the client.
    Ended { client_too: bool, detail: String },
    /// Nobody knows; it may work later.
    Failed(String),
}

/// What the browser brought, and what it belongs to.
pub(super) struct Brought<'a> {
    pub(super) code: &'a str,
    pub(super) verifier: &'a str,
    /// Where the browser was sent back to.
    pub(super) redirect: &'a str,
    /// The rights that were asked for.
    pub(super) scope: Option<&'a str>,
}

/// Tokens for the code that the browser brought.
pub(super) async fn for_code(
    web: &Web,
    token: &Url,
    client: &Client,
    resource: &str,
    brought: &Brought<'_>,
) -> Result<Tokens, SignInError> {
    let pairs = [
        ("grant_type", "authorization_code"),
        ("code", brought.code),
        ("redirect_uri", brought.redirect),
        ("code_verifier", brought.verifier),
        ("resource", resource),
    ];
    let answer = ask(web, token, client, &pairs).await?;
    read(token, &answer, None, brought.scope).map_err(|detail| SignInError::Exchange {
        detail: refused(&answer.body).unwrap_or(detail),
    })
}

/// New tokens for those of `kept`.
pub(super) async fn renewed(web: &Web, kept: &Kept, before: &Tokens) -> Result<Tokens, NotRenewed> {
    let Some(refresh) = &before.refresh else {
        return Err(NotRenewed::Ended {
            client_too: false,
            detail: "it has ended, and the server gives none that renew themselves".to_owned(),
        });
    };
    let failed = |error: SignInError| NotRenewed::Failed(error.to_string());
    let url = Url::parse(&kept.token)
        .map_err(|_| NotRenewed::Failed("its place for tokens is no address".to_owned()))?;
    let pairs = [
        ("grant_type", "refresh_token"),
        ("refresh_token", refresh.as_str()),
        ("resource", kept.resource.as_str()),
    ];
    let answer = ask(web, &url, &kept.client, &pairs).await.map_err(failed)?;
    match read(&url, &answer, Some(refresh), before.scope.as_deref()) {
        Ok(tokens) => Ok(tokens),
        Err(detail) => {
            let refusal = Refusal::read(&answer.body);
            let detail = refused(&answer.body).unwrap_or(detail);
            match refusal.as_ref().map(|refusal| refusal.error.as_str()) {
                Some("invalid_grant") => Err(NotRenewed::Ended {
                    client_too: false,
                    detail,
                }),
                Some("invalid_client" | "unauthorized_client") => Err(NotRenewed::Ended {
                    client_too: true,
                    detail,
                }),
                Some(_) | None => Err(NotRenewed::Failed(detail)),
            }
        }
    }
}

/// Tell the authorization server that a token is not used any more.
pub(super) async fn revoke(
    web: &Web,
    url: &Url,
    client: &Client,
    token: &str,
    kind: &str,
) -> Result<(), SignInError> {
    let pairs = [("token", token), ("token_type_hint", kind)];
    let answer = ask(web, url, client, &pairs).await?;
    if answer.status.is_success() {
        return Ok(());
    }
    Err(SignInError::Exchange {
        detail: refused(&answer.body).unwrap_or_else(|| answer.status.to_string()),
    })
}

async fn ask(
    web: &Web,
    url: &Url,
    client: &Client,
    pairs: &[(&str, &str)],
) -> Result<Answer, SignInError> {
    let mut pairs = pairs.to_vec();
    let mut headers = HeaderMap::new();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/x-www-form-urlencoded"),
    );
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    match (client.proof, &client.secret) {
        (Proof::Basic, Some(secret)) => {
            // Each part is encoded as in a form before the two become one.
            let encoded = |text: &str| {
                let text: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
                text
            };
            let both = format!("{}:{}", encoded(&client.id), encoded(secret));
            let value = format!("Basic {}", BASE64_STANDARD.encode(both));
            if let Ok(mut value) = HeaderValue::from_str(&value) {
                value.set_sensitive(true);
                headers.insert(AUTHORIZATION, value);
            }
        }
        (Proof::Post, Some(secret)) => {
            pairs.push(("client_id", &client.id));
            pairs.push(("client_secret", secret));
        }
        _ => pairs.push(("client_id", &client.id)),
    }
    Ok(web.post(url, headers, form(&pairs)).await?)
}

/// `refresh` and `scope` are those that stay in force when the answer names none.
fn read(
    url: &Url,
    answer: &Answer,
    refresh: Option<&str>,
    scope: Option<&str>,
) -> Result<Tokens, String> {
    #[derive(Deserialize)]
    struct Given {
        access_token: String,
        token_type: String,
        expires_in: Option<serde_json::Value>,
        refresh_token: Option<String>,
        scope: Option<String>,
    }

    let at = shown(url);
    if !answer.status.is_success() {
        return Err(format!("{at} answered {}", answer.status));
    }
    let given: Given = answer
        .json()
        .ok_or_else(|| format!("{at} answered with something else than a token"))?;
    if !given.token_type.eq_ignore_ascii_case("bearer") {
        return Err(format!("{at} gave a token of a kind that MCP does not use"));
    }
    // It becomes a header, and anything else in it would make another one.
    let is_token =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| (0x21..0x7f).contains(&byte));
    if !is_token(&given.access_token) {
        return Err(format!("{at} gave a token that cannot be sent"));
    }
    // Some write it as a text.
    let lasts = given.expires_in.and_then(|value| {
        value
            .as_f64()
            .or_else(|| value.as_str()?.parse().ok())
            .filter(|seconds| *seconds > 0.0)
    });
    let renew_at = lasts.map(|seconds| {
        let seconds = seconds.min(1e9) as u64;
        unix_now() + seconds - RENEW_BEFORE.as_secs().min(seconds / 10)
    });
    Ok(Tokens {
        access: given.access_token,
        refresh: given
            .refresh_token
            .filter(|token| !token.is_empty())
            .or_else(|| refresh.map(str::to_owned)),
        renew_at,
        scope: given.scope.or_else(|| scope.map(str::to_owned)),
    })
}

/// Seconds since 1970 by this machine's clock.
pub(super) fn unix_now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}
