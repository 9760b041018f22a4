//! The limits, made from their table.

use super::{Answer, Desk, Inner};
use crate::api::{ApiError, ErrorCode, Limit, LimitGroup, LimitUnit, SetBy};
use crate::settings::limits::{self, TABLE};
use crate::settings::units::Unit;
use crate::settings::{Layer, Settings};

impl Desk {
    /// Set a limit for the next run.
    pub async fn set_limit(&self, name: String, value: u64) -> Answer<Limit> {
        let row = self.0.changeable(&name)?;
        if !row.accepts(value) {
            let message = format!(
                "`{name}` can be {}, not {}",
                row.range(),
                row.unit.show(value)
            );
            return Err(ApiError::new(ErrorCode::SettingsInvalid, message));
        }
        let limits = self.0.bridge.settings().limits.clone();
        let mut set = vec![(row.name, value)];
        // The clock of a run never exceeds its ceiling: the one drags the other along.
        match row.name {
            "run_ms_default" if value > limits.run_ms_max => set.push(("run_ms_max", value)),
            "run_ms_max" if value < limits.run_ms_default => set.push(("run_ms_default", value)),
            _ => {}
        }
        let changes = set.into_iter().map(|(name, value)| {
            let keys = vec!["limits".to_owned(), name.to_owned()];
            (keys, Some(value.into()))
        });
        self.0.write_settings(changes.collect()).await?;
        Ok(limit(&self.0.bridge.settings(), row))
    }

    /// Put a limit back to its default.
    pub async fn reset_limit(&self, name: String) -> Answer<Limit> {
        let row = self.0.changeable(&name)?;
        let keys = vec!["limits".to_owned(), name];
        self.0.write_settings(vec![(keys, None)]).await?;
        Ok(limit(&self.0.bridge.settings(), row))
    }
}

impl Inner {
    /// The row of a limit that a window can change.
    fn changeable(&self, name: &str) -> Answer<&'static limits::Limit> {
        let refused = |message| Err(ApiError::new(ErrorCode::SettingsInvalid, message));
        let Some(row) = limits::row(name) else {
            return refused(format!("there is no limit `{name}`"));
        };
        if row.min == row.ceiling {
            return refused(format!("`{name}` cannot be changed"));
        }
        let settings = self.bridge.settings();
        match (settings.limits_set.get(row.name), row.variable) {
            (Some(Layer::Variable), Some(variable)) => refused(format!(
                "the variable {variable} of the environment sets `{name}`, and it wins over this window"
            )),
            _ => Ok(row),
        }
    }
}

/// All rows with the values in force.
pub(super) fn all(settings: &Settings) -> Vec<Limit> {
    TABLE.iter().map(|row| limit(settings, row)).collect()
}

fn limit(settings: &Settings, row: &limits::Limit) -> Limit {
    Limit {
        name: row.name.to_owned(),
        about: row.about.to_owned(),
        group: group(row.name),
        unit: match row.unit {
            Unit::Milliseconds => LimitUnit::Milliseconds,
            Unit::Bytes => LimitUnit::Bytes,
            Unit::CpuThousandths => LimitUnit::CpuThousandths,
            Unit::Count => LimitUnit::Count,
            Unit::Characters => LimitUnit::Characters,
        },
        value: settings.limits.get(row.name).unwrap_or(row.default),
        default: row.default,
        min: row.min,
        usual_max: row.usual_max,
        ceiling: row.ceiling,
        variable: row.variable.map(str::to_owned),
        set_by: match settings.limits_set.get(row.name) {
            None => SetBy::Default,
            Some(Layer::File) => SetBy::Settings,
            Some(Layer::Variable) => SetBy::Variable,
        },
    }
}

/// Where a window shows it.
fn group(name: &str) -> LimitGroup {
    match name {
        "run_ms_default" | "run_ms_max" | "calls_max" | "reply_chars_max" => LimitGroup::Run,
        "calls_at_once_max" | "call_ms_max" | "server_start_ms_max" | "server_idle_ms_max" => {
            LimitGroup::Calls
        }
        "memory_value_bytes_max" | "memory_keys_max" => LimitGroup::Memory,
        _ => LimitGroup::Sandbox,
    }
}
