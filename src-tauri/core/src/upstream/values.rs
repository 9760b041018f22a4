//! The values of an entry with the secrets that they stand for, looked up at the last moment: when
//! a process is started or a connection opened, and not before.

use std::collections::BTreeMap;

use super::error::UpstreamError;
use crate::secrets::{Secret, Secrets};

/// `env` with `keyring:NAME` replaced by the secret of that name.
pub(super) async fn of_variables(
    server: &str,
    env: &BTreeMap<String, Option<String>>,
    secrets: &Secrets,
) -> Result<BTreeMap<String, Option<String>>, UpstreamError> {
    let mut found = BTreeMap::new();
    for (name, value) in env {
        let value = match value {
            Some(value) => Some(of_value(server, value, secrets).await?),
            None => None,
        };
        found.insert(name.clone(), value);
    }
    Ok(found)
}

/// The same of headers, where a scheme such as `Bearer` may stand before the reference.
pub(super) async fn of_headers(
    server: &str,
    headers: &BTreeMap<String, String>,
    secrets: &Secrets,
) -> Result<BTreeMap<String, String>, UpstreamError> {
    let mut found = BTreeMap::new();
    for (name, value) in headers {
        let value = match value.split_once(' ') {
            Some((scheme, rest)) if Secrets::reference(rest).is_some() => {
                format!("{scheme} {}", of_value(server, rest, secrets).await?)
            }
            _ => of_value(server, value, secrets).await?,
        };
        found.insert(name.clone(), value);
    }
    Ok(found)
}

async fn of_value(server: &str, value: &str, secrets: &Secrets) -> Result<String, UpstreamError> {
    let Some(name) = Secrets::reference(value) else {
        return Ok(value.to_owned());
    };
    let failed = |detail: String| UpstreamError::Secret {
        server: server.to_owned(),
        detail,
    };
    let secret: Option<Secret> = secrets
        .get(name)
        .await
        .map_err(|error| failed(error.to_string()))?;
    let secret = secret.ok_or_else(|| {
        failed(format!(
            "there is no secret `{name}`; give it a value with `runbridge secret set {name}` or in the Runbridge window"
        ))
    })?;
    Ok(secret.expose().to_owned())
}
