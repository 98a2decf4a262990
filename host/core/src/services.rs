//! The services that a run uses: storage, credentials and models.

use std::sync::Arc;

use crate::artifact::ArtifactService;
use crate::auth::CredentialService;
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
    /// Keeps the credentials that users grant for tools.
    pub credentials: Arc<dyn CredentialService>,
    /// Finds models by name.
    pub models: Arc<dyn ModelResolver>,
}
