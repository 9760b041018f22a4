//! The one item of ours in the system's keyring: the key of the encrypted file.
//!
//! A keyring may hang, for a dialog that nobody answers or a service that does not start, so it is
//! asked on a thread of its own, one at a time, and nobody waits longer than the deadline. A keyring
//! that opens later is used from then on. It never makes the system ask for a password: a run that
//! needs a token must not put a dialog on the screen. Whatever library speaks to the system is named
//! here and nowhere else.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use keyring::{Entry, Error};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::lock;
use super::vault::{Key, Vaults};
use crate::paths::{Environment, Os, Paths};

/// A keyring that is there answers in milliseconds, started for it in some hundred.
const ANSWER: Duration = Duration::from_secs(2);

/// After a failure the keyring is asked again, but not for every secret.
const AGAIN: Duration = Duration::from_secs(10);

/// The name of our item's owner.
const SERVICE: &str = "runbridge";

pub(super) struct Keyring {
    /// Why there cannot be one.
    absent: Option<String>,
    /// Names our item: one for each place of our files.
    account: String,
    vaults: Arc<Vaults>,
    state: Mutex<State>,
}

type Outcome = Result<Key, String>;

enum State {
    NotAsked,
    Asking {
        since: Instant,
        done: watch::Receiver<Option<Outcome>>,
    },
    Open(Key),
    Closed {
        reason: String,
        at: Instant,
    },
}

impl Keyring {
    pub(super) fn new(environment: &Environment, paths: &Paths, vaults: Arc<Vaults>) -> Self {
        Self {
            absent: absent(environment),
            account: format!("key of {}", paths.data.display()),
            vaults,
            state: Mutex::new(State::NotAsked),
        }
    }

    /// The key, or in words why there is none now.
    pub(super) async fn key(self: &Arc<Self>) -> Outcome {
        if let Some(reason) = &self.absent {
            return Err(reason.clone());
        }
        let (since, mut done) = {
            let mut state = lock(&self.state);
            match &*state {
                State::Open(key) => return Ok(key.clone()),
                State::Closed { reason, at } if at.elapsed() < AGAIN => return Err(reason.clone()),
                State::Asking { since, done } => (*since, done.clone()),
                State::NotAsked | State::Closed { .. } => {
                    let since = Instant::now();
                    let done = self.ask();
                    *state = State::Asking {
                        since,
                        done: done.clone(),
                    };
                    (since, done)
                }
            }
        };
        let left = ANSWER.saturating_sub(since.elapsed());
        match timeout(left, done.wait_for(Option::is_some)).await {
            Ok(Ok(outcome)) => match &*outcome {
                Some(outcome) => outcome.clone(),
                None => Err("it was not asked".to_owned()),
            },
            Ok(Err(_)) => Err("the system gave no thread to ask it".to_owned()),
            Err(_) => Err(format!(
                "it did not answer within {} s; it may be waiting for its password",
                ANSWER.as_secs()
            )),
        }
    }

    /// Begin to ask. The thread ends with the answer, or with the process if there never is one.
    fn ask(self: &Arc<Self>) -> watch::Receiver<Option<Outcome>> {
        let (sender, done) = watch::channel(None);
        let keyring = Arc::clone(self);
        let work = move || {
            let outcome = keyring.look();
            *lock(&keyring.state) = match &outcome {
                Ok(key) => State::Open(key.clone()),
                Err(reason) => State::Closed {
                    reason: reason.clone(),
                    at: Instant::now(),
                },
            };
            sender.send_replace(Some(outcome));
        };
        // Without a thread the sender is dropped, which whoever waits sees.
        if let Err(error) = std::thread::Builder::new()
            .name("keyring".to_owned())
            .spawn(work)
        {
            tracing::warn!(%error, "no thread for the keyring");
        }
        done
    }

    /// Get the key, made now if there never was one.
    fn look(&self) -> Outcome {
        let entry = item(&self.account)?;
        let get = || match entry.get_password() {
            Ok(text) => Key::from_text(&text)
                .map(Some)
                .ok_or_else(|| "our item in it holds something else".to_owned()),
            Err(Error::NoEntry) => Ok(None),
            Err(error) => Err(in_words(&error)),
        };
        if let Some(key) = get()? {
            return Ok(key);
        }
        // Another process may make one at the same time.
        let _lock = self.vaults.lock().map_err(|error| error.to_string())?;
        if let Some(key) = get()? {
            return Ok(key);
        }
        let key = Key::random().map_err(|error| error.to_string())?;
        entry
            .set_password(key.to_text().expose())
            .map_err(|error| in_words(&error))?;
        // Read back: some services accept what they then do not keep.
        get()?.ok_or_else(|| "it did not keep what was given to it".to_owned())
    }
}

/// Where the system has a keyring at all.
fn absent(environment: &Environment) -> Option<String> {
    if environment.os() != Os::Linux {
        return None;
    }
    let bus = environment.filled("DBUS_SESSION_BUS_ADDRESS").is_some()
        || environment
            .folder("XDG_RUNTIME_DIR")
            .is_some_and(|folder| folder.join("bus").exists());
    (!bus).then(|| {
        "there is no session bus, by which a keyring is reached (no DBUS_SESSION_BUS_ADDRESS)"
            .to_owned()
    })
}

/// Our item. `keyring` opens the system's store once per process and remembers a failure, so it is not
/// called before it is known that one would open.
fn item(account: &str) -> Result<Entry, String> {
    #[cfg(target_os = "linux")]
    check_unlocked()?;
    let entry = Entry::new(SERVICE, account);
    entry.map_err(|error| match (error, Entry::store_status()) {
        (Error::NoDefaultStore, Err(reason)) => in_words(reason),
        (error, _) => in_words(&error),
    })
}

/// The store unlocks by asking the user, so it is not called while that would be needed.
#[cfg(target_os = "linux")]
fn check_unlocked() -> Result<(), String> {
    use secret_service::EncryptionType;
    use secret_service::blocking::SecretService;

    let said = |error: secret_service::Error| match error {
        secret_service::Error::Unavailable => {
            "no program offers one on this desktop (org.freedesktop.secrets)".to_owned()
        }
        secret_service::Error::NoResult => {
            "it has no default keyring; make one with your desktop's password manager".to_owned()
        }
        other => other.to_string(),
    };
    let service = SecretService::connect(EncryptionType::Plain).map_err(said)?;
    let collection = service.get_default_collection().map_err(said)?;
    if collection.is_locked().map_err(said)? {
        return Err(
            "it is locked; unlock it with your desktop's password manager or by signing in anew"
                .to_owned(),
        );
    }
    Ok(())
}

fn in_words(error: &Error) -> String {
    match error {
        Error::Ambiguous(_) => "it holds our item twice; remove both".to_owned(),
        other => other.to_string(),
    }
}
