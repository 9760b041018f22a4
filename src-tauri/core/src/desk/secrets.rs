//! Secret values on their way into the store; none ever comes back.

use serde_json::Value;

use super::{Answer, Desk, Inner, lock};
use crate::api::{ApiError, Change, ErrorCode, SecretStore, SecretStoreKind};
use crate::clients::entry::EntryTransport;
use crate::secrets::{Place, Secret, Secrets, SecretsError};

impl Desk {
    /// Give a variable of a server a value, which goes to the secret store and never comes back.
    pub async fn set_server_secret(
        &self,
        server: String,
        name: String,
        value: String,
    ) -> Answer<()> {
        let inner = &self.0;
        let entry = inner.entry(&server)?;
        let settings = inner.bridge.settings();
        if let Some(own) = settings.own_servers.get(&server) {
            let key = match entry.transport {
                EntryTransport::Stdio { .. } => "env",
                EntryTransport::Http { .. } => "headers",
            };
            if own.get(key).and_then(|set| set.get(&name)).is_some() {
                let reference = inner
                    .keep_secret(&format!("{server}/{name}"), value)
                    .await?;
                let keys = ["own_servers", &server, key, &name].map(str::to_owned);
                return inner
                    .write_settings(vec![(keys.into(), Some(reference.into()))])
                    .await;
            }
        }
        if !entry.needs.contains(&name) && !settings.answers.contains_key(&name) {
            let message = format!(
                "`{name}` of server `{server}` has its value in the file that names the server"
            );
            return Err(ApiError::new(ErrorCode::InvalidArguments, message)
                .hint("Change it in the client that the server comes from"));
        }
        let reference = inner.keep_secret(&name, value).await?;
        let keys = vec!["answers".to_owned(), name];
        inner
            .write_settings(vec![(keys, Some(reference.into()))])
            .await
    }
}

impl Inner {
    /// Keep a secret; gives what stands for it in settings.
    pub(super) async fn keep_secret(&self, name: &str, value: String) -> Answer<String> {
        if value.is_empty() {
            let message = format!("`{name}` has an empty value");
            return Err(ApiError::new(ErrorCode::InvalidArguments, message));
        }
        self.bridge.secrets().set(name, Secret::new(value)).await?;
        self.look_at_secret_store().await;
        Ok(format!("keyring:{name}"))
    }

    /// Forget the secrets that an entry of ours names.
    pub(super) async fn forget_secrets(&self, entry: &Value) {
        for key in ["env", "headers"] {
            let set = entry.get(key).and_then(Value::as_object);
            for value in set.into_iter().flat_map(|set| set.values()) {
                let Some(name) = value.as_str().and_then(Secrets::reference) else {
                    continue;
                };
                if let Err(error) = self.bridge.secrets().forget(name).await {
                    tracing::warn!("a secret of a removed server is left: {error}");
                }
            }
        }
    }

    /// Where secrets are kept, asked anew and told if it differs.
    pub(super) async fn look_at_secret_store(&self) {
        let place = self.bridge.secrets().place().await;
        let store = match place {
            Place::Keyring | Place::Memory => SecretStore {
                kind: SecretStoreKind::Keyring,
                error: None,
            },
            Place::File { reason } => SecretStore {
                kind: SecretStoreKind::EncryptedFile,
                error: Some(
                    ApiError::new(ErrorCode::SecretStoreLocked, reason)
                        .hint("Secrets are kept in an encrypted file instead"),
                ),
            },
        };
        {
            let mut known = lock(&self.secret_store);
            if known.as_ref() == Some(&store) {
                return;
            }
            *known = Some(store);
        }
        let app = self.app_info();
        self.bridge.events().tell(Change::App { app });
        self.look_at_attention();
    }

    /// As far as it is known: the keyring is not asked for a look, since it may ask the user.
    pub(super) fn secret_store(&self) -> SecretStore {
        let known = lock(&self.secret_store).clone();
        known.unwrap_or(SecretStore {
            kind: SecretStoreKind::Keyring,
            error: None,
        })
    }

    /// Whether any secret of ours is needed.
    pub(super) fn uses_secrets(&self) -> bool {
        let settings = self.bridge.settings();
        let reference = |value: &Value| value.as_str().and_then(Secrets::reference).is_some();
        let answers = settings.answers.values();
        answers
            .into_iter()
            .any(|answer| Secrets::reference(answer).is_some())
            || settings.own_servers.values().any(|entry| {
                ["env", "headers"].iter().any(|key| {
                    let set = entry.get(key).and_then(Value::as_object);
                    set.is_some_and(|set| set.values().any(reference))
                })
            })
    }
}

impl From<SecretsError> for ApiError {
    fn from(error: SecretsError) -> Self {
        let (code, hint) = match &error {
            SecretsError::Name { .. } | SecretsError::TooLong { .. } => {
                (ErrorCode::InvalidArguments, None)
            }
            SecretsError::Full => (ErrorCode::InvalidArguments, None),
            SecretsError::Locked { .. } => (
                ErrorCode::SecretStoreLocked,
                Some("Unlock the keyring, then try again"),
            ),
            SecretsError::Files { .. } => (
                ErrorCode::Internal,
                Some("Make the folder writable, or free some space on its disk"),
            ),
        };
        let said = Self::new(code, error.to_string());
        match hint {
            Some(hint) => said.hint(hint),
            None => said,
        }
    }
}
