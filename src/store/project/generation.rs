//! Lives of workers.

use super::Projector;
use crate::cell::Role;
use crate::event::{GenerationEnded, KernelReset};
use crate::store::StoreError;

impl Projector<'_> {
    pub(super) fn generation_started(&self, reset: &KernelReset) -> Result<(), StoreError> {
        self.insert(
            "INSERT INTO generations (started, session, role, generation, unit, containment)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            &[
                &self.event.id.0,
                &self.session(),
                &reset.role.as_str(),
                &reset.generation.as_str(),
                &reset.unit,
                &reset.containment,
            ],
        )
    }

    pub(super) fn generation_ended(&self, ended: &GenerationEnded) -> Result<(), StoreError> {
        self.one(
            "UPDATE generations SET ended = ?1
             WHERE session = ?2 AND role = ?3 AND generation = ?4 AND ended IS NULL",
            &[&self.event.id.0, &self.session(), &ended.role.as_str(), &ended.generation.as_str()],
            || format!("generation {} does not run", ended.generation),
        )?;
        match ended.role {
            Role::Workbench => self.arrival(true),
            Role::Hooks => Ok(()),
        }
    }
}
