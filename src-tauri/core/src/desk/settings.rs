//! The user's decisions that are not limits, and the program itself.

use std::path::PathBuf;

use serde_json::Value;

use super::{Answer, Desk, Inner, blocking, errors, lock};
use crate::api::{
    ApiError, AppInfo, AppSettings, Appearance, Change, ErrorCode, Licence, Place, SettingsPatch,
    UpdateState,
};
use crate::paths::Os;
use crate::settings::{self, KEEP_RUNS_RANGE, Settings};

impl Desk {
    /// Change settings.
    pub async fn change_settings(&self, patch: SettingsPatch) -> Answer<()> {
        let (runs_max, days_max) = KEEP_RUNS_RANGE;
        for (number, max) in [
            (patch.keep_runs_max, runs_max),
            (patch.keep_runs_days, days_max),
        ] {
            if number.is_some_and(|number| !(1..=max).contains(&number)) {
                let message = format!("the record keeps from 1 to {max}");
                return Err(ApiError::new(ErrorCode::SettingsInvalid, message));
            }
        }
        let mut changes: Vec<(Vec<String>, Option<Value>)> = Vec::new();
        let mut set = |keys: &[&str], value: Option<Value>| {
            if value.is_some() {
                changes.push((keys.iter().map(|&key| key.to_owned()).collect(), value));
            }
        };
        let appearance = patch.appearance.map(|appearance| match appearance {
            Appearance::System => settings::Appearance::System,
            Appearance::Light => settings::Appearance::Light,
            Appearance::Dark => settings::Appearance::Dark,
        });
        set(&["launch_at_login"], patch.launch_at_login.map(Value::from));
        set(&["notifications"], patch.notifications.map(Value::from));
        set(
            &["check_for_updates"],
            patch.check_for_updates.map(Value::from),
        );
        set(&["appearance"], appearance.map(|it| it.as_str().into()));
        set(
            &["activity", "keep_runs_days"],
            patch.keep_runs_days.map(Value::from),
        );
        set(
            &["activity", "keep_runs_max"],
            patch.keep_runs_max.map(Value::from),
        );
        self.0.write_settings(changes).await
    }

    /// One of our places, for the shell to show in the system's file manager.
    pub fn open_place(&self, place: Place) -> PathBuf {
        let paths = self.0.bridge.paths();
        match place {
            Place::Settings => paths.settings(),
            Place::State => paths.state.clone(),
            Place::Data => paths.data.clone(),
            Place::Logs => self.0.logs(),
        }
    }

    /// The shell looked for a newer version, or is getting one.
    pub fn set_update(&self, update: UpdateState) {
        *lock(&self.0.update) = update;
        let app = self.0.app_info();
        self.0.bridge.events().tell(Change::App { app });
        self.0.look_at_attention();
    }

    /// Licences of all parts.
    pub async fn read_licences(&self) -> Answer<Vec<Licence>> {
        blocking(|| {
            serde_json::from_str(include_str!("licences.json"))
                .map_err(|error| errors::internal(format!("the list of licences: {error}")))
        })
        .await
    }
}

impl Inner {
    /// Write values into the settings file and put them in force.
    pub(super) async fn write_settings(
        &self,
        changes: Vec<(Vec<String>, Option<Value>)>,
    ) -> Answer<()> {
        if changes.is_empty() {
            return Ok(());
        }
        self.bridge.change_settings(changes).await?;
        self.look_at_files();
        Ok(())
    }

    pub(super) fn app_settings(settings: &Settings) -> AppSettings {
        AppSettings {
            launch_at_login: settings.launch_at_login,
            notifications: settings.notifications,
            check_for_updates: settings.check_for_updates,
            appearance: match settings.appearance {
                settings::Appearance::System => Appearance::System,
                settings::Appearance::Light => Appearance::Light,
                settings::Appearance::Dark => Appearance::Dark,
            },
            keep_runs_days: settings.keep_runs_days,
            keep_runs_max: settings.keep_runs_max,
        }
    }

    pub(super) fn app_info(&self) -> AppInfo {
        let paths = self.bridge.paths();
        let show = |path: PathBuf| path.display().to_string();
        AppInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            system: match Os::CURRENT {
                Os::Linux => "linux",
                Os::Macos => "macos",
                Os::Windows => "windows",
            }
            .to_owned(),
            sidecar: show(self.app.sidecar.clone()),
            settings_file: show(paths.settings()),
            state_folder: show(paths.state.clone()),
            data_folder: show(paths.data.clone()),
            logs_folder: show(self.logs()),
            secret_store: self.secret_store(),
            update: lock(&self.update).clone(),
        }
    }

    pub(super) fn logs(&self) -> PathBuf {
        let logs = self.app.logs.clone();
        logs.unwrap_or_else(|| self.bridge.paths().logs.clone())
    }
}
