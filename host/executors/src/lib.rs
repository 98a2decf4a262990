//! Executors of the code that models write: containers of Docker or Podman, and code interpreter extensions of Vertex
//! AI. Both implement [`hatchery_core::CodeExecutor`]; the third kind are components.

#[cfg(unix)]
mod container;
mod media_type;
mod output_files;
mod vertex;

#[cfg(unix)]
pub use container::{ContainerConfig, ContainerExecutor};
pub use vertex::{CredentialsSource, ExtensionOperation, VertexConfig, VertexExecutor};
