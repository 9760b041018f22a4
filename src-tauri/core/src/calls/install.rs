//! `runtime.install`: whether the user lets it happen, and what the run sees of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use runbridge_sandbox::CallError;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{Inside, RunCalls, raw, redacted};
use crate::api::SandboxKind;
use crate::events::Hint;
use crate::packages::{self, Installation, Order, Packages, PackagesError, Target};
use crate::questions::{Answer, Asked, Question};
use crate::settings::PackagesPolicy;

/// Who asks, where a server's name stands in other questions.
const ASKER: &str = "Runbridge";

/// The field of the question, and what can be chosen.
const FIELD: &str = "allow";
const ONCE: &str = "this once";
const ALWAYS: &str = "always";
const NO: &str = "no";

#[derive(Deserialize)]
pub(super) struct Asking {
    packages: Vec<String>,
    /// What came with a container's image. The code may say anything here: it could as well install
    /// by name what it leaves out.
    #[serde(default)]
    present: BTreeMap<String, String>,
}

/// What keeps packages from this run.
struct Refused {
    code: &'static str,
    message: String,
}

impl Refused {
    fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

impl From<PackagesError> for Refused {
    fn from(error: PackagesError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl RunCalls {
    pub(super) async fn install(
        self: &Arc<Self>,
        asking: Asking,
    ) -> Result<Box<RawValue>, CallError> {
        self.count_call()?;
        let redactor = self.bridge.redactor();
        let wanted = json!({ "packages": asking.packages });
        let mut open = self.open_call("packages", "install", &redactor.text(&wanted.to_string()));
        match self.installed(asking).await {
            Ok((installation, files)) => {
                let told = told(&wanted, &installation);
                if let Some(record) = &mut open.record {
                    record.arguments = redactor.text(&told).into_owned();
                }
                let answer = raw(&json!({ "installed": installation.there, "files": files }))?;
                open.answered("install", answer.get(), None);
                Ok(answer)
            }
            Err(refused) => {
                let message = redactor.text(&refused.message).into_owned();
                open.refused(refused.code, &message);
                let kind = if refused.code == "package_malformed" {
                    "value"
                } else {
                    "runtime"
                };
                let mut error = CallError::new(kind, message);
                error.code = Some(Box::new(refused.code.into()));
                Err(error)
            }
        }
    }

    async fn installed(
        self: &Arc<Self>,
        asking: Asking,
    ) -> Result<(Installation, Vec<String>), Refused> {
        let settings = self.bridge.settings();
        if settings.packages.policy == PackagesPolicy::Off {
            return Err(Refused::new(
                "packages_off",
                "the user has switched packages off; they can be allowed in Sandbox settings",
            ));
        }
        let (inside, kind) = self.place()?;
        let target = Target::new(kind, &inside.python).ok_or_else(|| {
            let python = &inside.python;
            Refused::new(
                "package_not_mounted",
                format!("Python {python} is none that packages can be chosen for"),
            )
        })?;
        let environment = self.bridge.environment();
        let order = Order {
            requirements: &asking.packages,
            target: &target,
            present: match kind {
                SandboxKind::Wasi => Packages::bundled(&environment).await,
                SandboxKind::Container => asking.present,
            },
            index: settings.packages.index.as_deref(),
            bytes_max: settings.limits.package_bytes_max,
        };
        let packages = self.bridge.packages();
        let installation = if let Some(there) = packages.already(&order).await? {
            there
        } else {
            let host = packages::index_host(&self.bridge).await?;
            if settings.packages.policy == PackagesPolicy::Ask {
                self.ask_for(&asking.packages, &host).await?;
            }
            // What the index takes to answer is no more the code's time than a person's thoughts.
            let _still = self.thinking.pause();
            let login = self.bridge.login_env().get().await;
            let report = self.report.clone();
            let heard = |words: &str| {
                if let Some(report) = &report {
                    report(words);
                }
            };
            let installed = packages.install(&order, &environment, &login, &heard);
            let installation = installed.await?;
            self.bridge.events().hint(Hint::Sandbox);
            installation
        };
        if inside.mounts.were_not_wanted() {
            let there = installation.there.iter();
            let there: Vec<_> = there.map(|there| there.name.as_str()).collect();
            return Err(Refused::new(
                "package_not_mounted",
                format!(
                    "{} can be imported in every session that begins now; this one began when packages \
                     were not allowed yet, so go on in another one: give the tool the argument `session` \
                     with a new name",
                    there.join(", ")
                ),
            ));
        }
        let files = packages.mount(&target, &inside.mounts).await?;
        Ok((installation, files))
    }

    /// Where the packages would have to be seen.
    fn place(&self) -> Result<(&Inside, SandboxKind), Refused> {
        match (&self.inside, &self.sandbox) {
            (Some(inside), Some(sandbox))
                if inside.mounts.are_possible() || inside.mounts.were_not_wanted() =>
            {
                Ok((inside, sandbox.kind()))
            }
            _ => Err(Refused::new(
                "package_not_mounted",
                "packages cannot be installed in this container, whose engine sees no folder of this \
                 machine; switch to Built-in in Sandbox settings",
            )),
        }
    }

    /// Have the user say whether it may happen.
    async fn ask_for(self: &Arc<Self>, packages: &[String], host: &str) -> Result<(), Refused> {
        const HOW: &str = "the user can allow packages in Sandbox settings, or as `\"packages\": \
                           {\"policy\": \"allow\"}` in settings.json";
        let nobody = |why: &str| {
            Refused::new(
                "packages_not_allowed",
                format!("the user must allow this, and nobody could be asked: {why}; {HOW}"),
            )
        };
        let ask = self.ask.clone();
        let ask = ask.ok_or_else(|| nobody("nobody follows this run"))?;
        let ask = redacted(ask, self.bridge.redactor());
        let answer = ask(question(packages, host)).await;
        let answer = answer.map_err(|why| nobody(&why))?;
        let chosen = match &answer {
            Answer::Accepted(values) => values.get(FIELD).and_then(Value::as_str),
            Answer::Said(_) | Answer::Declined | Answer::Cancelled => None,
        };
        match chosen {
            Some(ONCE) => Ok(()),
            Some(ALWAYS) => {
                let keys = ["packages", "policy"].map(str::to_owned).to_vec();
                let value = PackagesPolicy::Allow.as_str().into();
                let written = self.bridge.change_settings(vec![(keys, Some(value))]);
                if let Err(error) = written.await {
                    self.note(format!("that packages are allowed was not kept: {error}"));
                }
                Ok(())
            }
            _ => Err(Refused::new(
                "packages_not_allowed",
                format!(
                    "the user did not allow {} to be installed; do without",
                    packages.join(", ")
                ),
            )),
        }
    }
}

fn question(packages: &[String], host: &str) -> Question {
    let message = format!(
        "May Python packages be installed? Wanted: {}, from {host}. They are pure Python, run inside \
         the sandbox alone, and are there in later sessions too.",
        packages.join(", ")
    );
    let schema = json!({
        "type": "object",
        "properties": {
            FIELD: {
                "type": "string",
                "title": "Allow",
                "enum": [ONCE, ALWAYS, NO],
            },
        },
        "required": [FIELD],
    });
    let schema = match schema {
        Value::Object(schema) => schema,
        _ => Map::new(),
    };
    Question {
        server: ASKER.to_owned(),
        message: message.chars().take(super::QUESTION_CHARS_MAX).collect(),
        asked: Asked::Form(schema),
    }
}

/// What the record keeps of it: what was asked for, and what came from where.
fn told(wanted: &Value, installation: &Installation) -> String {
    let mut told = wanted.clone();
    let there = installation.there.iter();
    let there = there.map(|there| format!("{} {}", there.name, there.version));
    told["installed"] = there.collect();
    if let Some(first) = installation.new.first() {
        told["index"] = first.index.as_str().into();
    }
    told.to_string()
}
