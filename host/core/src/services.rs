//! The services that a run uses: storage and models.

use std::sync::Arc;

use crate::artifact::ArtifactService;
use crate::memory::MemoryService;
use crate::model::ModelResolver;
use crate::session::SessionService;

/// The services that a run uses. Cheap to clone.
#[derive(Clone)]
pub struct Services {
    /// Stores sessions and their events.
    pub sessions: Arc<dyn SessionService>,
    /// Stores artifacts.
    pub artifacts: Arc<dyn ArtifactService>,
    /// Searches earlier sessions.
    pub memory: Arc<dyn MemoryService>,
    /// Finds models by name.
    pub models: Arc<dyn ModelResolver>,
}
