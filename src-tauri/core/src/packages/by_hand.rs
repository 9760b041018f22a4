//! What a person does with packages, from a terminal or a window: no run is there, and nobody has to
//! be asked.

use super::{Heard, Order, Package, Packages, PackagesError, Target, blocking};
use crate::api::SandboxKind;
use crate::bridge::Bridge;

/// The Python that packages are chosen for where no built-in one tells its version.
const PYTHON: &str = "3.13.0";

/// All that is installed.
pub async fn installed(bridge: &Bridge) -> Vec<Package> {
    let packages = bridge.packages().clone();
    let listed = blocking(move || Ok(packages.installed()));
    listed.await.unwrap_or_default()
}

/// Install packages for the built-in Python; gives all that they come to. `heard` is told what is
/// being done.
pub async fn add(
    bridge: &Bridge,
    requirements: &[String],
    heard: Heard<'_>,
) -> Result<Vec<(String, String)>, PackagesError> {
    let python = bridge.sandboxes().builtin_standing().and_then(Result::ok);
    let target = python.and_then(|python| Target::new(SandboxKind::Wasi, &python));
    let target = target.or_else(|| Target::new(SandboxKind::Container, PYTHON));
    let target = target.ok_or(PackagesError::NotThere)?;
    let (settings, environment) = (bridge.settings(), bridge.environment());
    let order = Order {
        requirements,
        target: &target,
        present: Packages::bundled(&environment).await,
        index: settings.packages.index.as_deref(),
        bytes_max: settings.limits.package_bytes_max,
    };
    let packages = bridge.packages();
    let done = if let Some(done) = packages.already(&order).await? {
        done
    } else {
        let login = bridge.login_env().get().await;
        packages
            .install(&order, &environment, &login, heard)
            .await?
    };
    let there = done.there.into_iter();
    Ok(there.map(|there| (there.name, there.version)).collect())
}

/// Take a package away from sessions that begin after this; tells whether it was there.
pub async fn remove(bridge: &Bridge, name: &str) -> Result<bool, PackagesError> {
    let (packages, name) = (bridge.packages().clone(), name.to_owned());
    blocking(move || packages.remove(&name)).await
}

/// The host that packages would come from.
pub async fn index_host(bridge: &Bridge) -> Result<String, PackagesError> {
    let (packages, environment) = (bridge.packages().clone(), bridge.environment());
    let setting = bridge.settings().packages.index.clone();
    blocking(move || packages.index_host(setting.as_deref(), &environment)).await
}
