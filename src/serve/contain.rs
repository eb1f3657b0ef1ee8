//! Which containment: what was asked for by name or not at all; without a name, the strongest there is.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ServeError;
use crate::config::{Config, ContainmentChoice};
use crate::containment::process::{Orphans, ProcessContainment};
use crate::containment::systemd::{SPAWN_SOCKET, SpawnedContainment, Surroundings, SystemdContainment};
use crate::containment::{Containment, ContainmentError};
use crate::notice;
use crate::systemd::unit::{self, OwnUnit};

/// Opens the containment, and says so where it is a weaker one than there could be.
pub(super) async fn open(
    config: &Config,
    data_tag: &str,
    around: Surroundings,
) -> Result<Arc<dyn Containment>, ServeError> {
    match config.containment {
        ContainmentChoice::Process => {
            look_at_workspace(&around.workspace);
            Ok(Arc::new(process(config, data_tag)?))
        }
        ContainmentChoice::Cgroup => Err(ServeError::NoSuchContainment("cgroup")),
        ContainmentChoice::Systemd => Ok(systemd(config, data_tag, around).await?),
        // Without its workers' own user, a service of the system has nobody to hide its key from.
        ContainmentChoice::Auto if is_spawned_for() => Ok(systemd(config, data_tag, around).await?),
        ContainmentChoice::Auto => match systemd(config, data_tag, around.clone()).await {
            Ok(containment) => Ok(containment),
            Err(error) => {
                tracing::warn!(
                    message_id = notice::DOWNGRADE,
                    error = &error as &dyn std::error::Error,
                    "workers are held by process only, without a sandbox"
                );
                look_at_workspace(&around.workspace);
                Ok(Arc::new(process(config, data_tag)?))
            }
        },
    }
}

/// Workers that are held by process may do what their host may: one in a closed unit writes nowhere.
fn look_at_workspace(workspace: &Path) {
    if rustix::fs::access(workspace, rustix::fs::Access::WRITE_OK).is_err() {
        let path = workspace.display();
        tracing::warn!("the workspace {path} cannot be written; in a unit, give it ReadWritePaths={path}");
    }
}

fn process(config: &Config, data_tag: &str) -> Result<ProcessContainment, ContainmentError> {
    // This program as it runs, whatever has become of its file since.
    let program = Path::new("/proc/self/exe");
    Ok(ProcessContainment::new(program, data_tag, Orphans::All)?.with_sandbox(&config.sandbox))
}

pub(super) async fn systemd(
    config: &Config,
    data_tag: &str,
    around: Surroundings,
) -> Result<Arc<dyn Containment>, ContainmentError> {
    if is_spawned_for() {
        return Ok(Arc::new(SpawnedContainment::new(data_tag, &config.sandbox, around).await?));
    }
    let last_line = process(config, data_tag)?;
    Ok(Arc::new(SystemdContainment::new(data_tag, &config.sandbox, around, last_line).await?))
}

/// Whether this host is a service of the system for which the system's manager starts workers.
fn is_spawned_for() -> bool {
    matches!(unit::own(), Some(OwnUnit::System(_))) && Path::new(SPAWN_SOCKET).exists()
}

/// Where a host and its user keep things.
pub(super) fn surroundings(
    options: &super::ServeOptions,
    config: &Config,
    data: &Path,
    workspace: &Path,
) -> Surroundings {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    Surroundings {
        data: data.to_owned(),
        config: options.config.clone(),
        socket: std::path::absolute(&options.socket).unwrap_or_else(|_| options.socket.clone()),
        workspace: workspace.to_owned(),
        python: config.python.clone(),
        home: variable("HOME"),
        runtime: variable("XDG_RUNTIME_DIR"),
        unit: unit::own().and_then(|unit| match unit {
            OwnUnit::User(name) => (!is_spawned_for()).then_some(name),
            OwnUnit::System(name) => is_spawned_for().then_some(name),
        }),
    }
}
