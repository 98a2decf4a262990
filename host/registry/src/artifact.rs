//! OCI artifact of a component: media types and configuration of the Wasm OCI artifact layout, which `wkg`, `oras` and
//! other hosts read.
//!
//! These tools reject a component with a second layer, so the signature is an annotation of the only layer.

use std::collections::BTreeMap;

use bytes::Bytes;
use oci_client::manifest::{OCI_IMAGE_MEDIA_TYPE, OciDescriptor, OciImageManifest};
use serde::Serialize;

use crate::component::{Digest, Interfaces, MAX_BYTES};
use crate::error::RegistryError;
use crate::reference::Reference;

const CONFIG_MEDIA_TYPE: &str = "application/vnd.wasm.config.v0+json";
pub(crate) const LAYER_MEDIA_TYPE: &str = "application/wasm";
/// The annotation with the minisign signature of the layer.
const SIGNATURE_ANNOTATION: &str = "vnd.hatchery.signature.minisign.v1";

/// The configuration blob.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Config<'a> {
    /// Required. A constant, so that the digest does not depend on the time of the push.
    created: &'static str,
    architecture: &'static str,
    os: &'static str,
    layer_digests: [&'a Digest; 1],
    component: &'a Interfaces,
}

/// The blobs and the manifest of a component.
pub(crate) struct Artifact {
    pub(crate) config: Bytes,
    pub(crate) layer: Bytes,
    pub(crate) manifest: OciImageManifest,
}

impl Artifact {
    pub(crate) fn new(interfaces: &Interfaces, layer: Bytes, signature: Option<String>) -> serde_json::Result<Self> {
        let digest = Digest::compute(&layer);
        let config = Config {
            created: "1970-01-01T00:00:00Z",
            architecture: "wasm",
            os: "wasip2",
            layer_digests: [&digest],
            component: interfaces,
        };
        let config = Bytes::from(serde_json::to_vec(&config)?);
        let annotations = signature.map(|signature| BTreeMap::from([(SIGNATURE_ANNOTATION.to_owned(), signature)]));
        let manifest = OciImageManifest {
            media_type: Some(OCI_IMAGE_MEDIA_TYPE.to_owned()),
            config: descriptor(CONFIG_MEDIA_TYPE, &Digest::compute(&config), config.len(), None),
            layers: vec![descriptor(LAYER_MEDIA_TYPE, &digest, layer.len(), annotations)],
            ..OciImageManifest::default()
        };
        Ok(Self { config, layer, manifest })
    }
}

fn descriptor(
    media_type: &str,
    digest: &Digest,
    size: usize,
    annotations: Option<BTreeMap<String, String>>,
) -> OciDescriptor {
    OciDescriptor {
        media_type: media_type.to_owned(),
        digest: digest.to_string(),
        size: i64::try_from(size).unwrap_or(i64::MAX),
        annotations,
        ..OciDescriptor::default()
    }
}

/// The layer of a manifest with the component.
#[derive(Debug)]
pub(crate) struct ComponentLayer {
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    pub(crate) signature: Option<String>,
}

impl ComponentLayer {
    /// Parses a manifest and finds the layer with the component.
    pub(crate) fn read(reference: &Reference, manifest: &[u8]) -> Result<Self, RegistryError> {
        let manifest = serde_json::from_slice(manifest).map_err(|error| RegistryError::NotComponent {
            origin: reference.to_string(),
            reason: format!("its manifest cannot be read: {error}"),
        })?;
        Self::find(reference, manifest)
    }

    fn find(reference: &Reference, manifest: OciImageManifest) -> Result<Self, RegistryError> {
        let not_component =
            |reason: &str| RegistryError::NotComponent { origin: reference.to_string(), reason: reason.to_owned() };
        let mut layers = manifest.layers.into_iter().filter(|layer| layer.media_type == LAYER_MEDIA_TYPE);
        let (Some(mut layer), None) = (layers.next(), layers.next()) else {
            return Err(not_component(&format!(
                "its manifest does not have exactly one layer of type {LAYER_MEDIA_TYPE}"
            )));
        };
        let size = u64::try_from(layer.size).map_err(|_| not_component("its manifest declares a negative size"))?;
        if size > MAX_BYTES {
            return Err(RegistryError::TooLarge { origin: reference.to_string(), size, max: MAX_BYTES });
        }
        let signature = layer.annotations.as_mut().and_then(|annotations| annotations.remove(SIGNATURE_ANNOTATION));
        let digest = Digest::try_from(layer.digest).map_err(|reason| not_component(&reason))?;
        Ok(Self { digest, size, signature })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(signature: Option<&str>) -> Artifact {
        let interfaces = Interfaces { exports: vec!["hatchery:agent/guest-tools@0.1.0".into()], imports: Vec::new() };
        Artifact::new(&interfaces, Bytes::from_static(b"wasm"), signature.map(Into::into)).unwrap()
    }

    fn reference() -> Reference {
        "localhost:5000/x:1".parse().unwrap()
    }

    #[test]
    fn the_artifact_has_the_standard_layout() {
        let artifact = artifact(None);
        let config: serde_json::Value = serde_json::from_slice(&artifact.config).unwrap();
        let expected = serde_json::json!({
            "created": "1970-01-01T00:00:00Z", "architecture": "wasm", "os": "wasip2", "layerDigests": [Digest::compute(b"wasm")],
            "component": {"exports": ["hatchery:agent/guest-tools@0.1.0"], "imports": []},
        });
        assert_eq!(config, expected);
        let manifest = serde_json::to_value(&artifact.manifest).unwrap();
        let expected = serde_json::json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"mediaType": "application/vnd.wasm.config.v0+json", "digest": Digest::compute(&artifact.config),
                "size": artifact.config.len()},
            "layers": [{"mediaType": "application/wasm", "digest": Digest::compute(b"wasm"), "size": 4}],
        });
        assert_eq!(manifest, expected);
    }

    #[test]
    fn the_layer_contains_the_signature() {
        let layer = ComponentLayer::find(&reference(), artifact(Some("signed")).manifest).unwrap();
        assert_eq!((layer.digest, layer.size), (Digest::compute(b"wasm"), 4));
        assert_eq!(layer.signature.as_deref(), Some("signed"));
    }

    #[test]
    fn manifests_without_a_component_or_with_a_large_one_are_rejected() {
        let error_of = |change: fn(&mut OciImageManifest)| {
            let mut manifest = artifact(None).manifest;
            change(&mut manifest);
            ComponentLayer::find(&reference(), manifest).unwrap_err().to_string()
        };
        let none = error_of(|manifest| manifest.layers.clear());
        assert!(
            none.starts_with("localhost:5000/x:1 is not a component: its manifest does not have exactly one layer"),
            "{none}"
        );
        let two = error_of(|manifest| manifest.layers.extend(manifest.layers.clone()));
        assert!(two.contains("not have exactly one layer of type application/wasm"), "{two}");
        let large = error_of(|manifest| manifest.layers.iter_mut().for_each(|layer| layer.size = 1 << 30));
        assert!(
            large.starts_with("localhost:5000/x:1 has 1073741824 bytes, but a component can have at most"),
            "{large}"
        );
        let negative = error_of(|manifest| manifest.layers.iter_mut().for_each(|layer| layer.size = -1));
        assert!(negative.contains("negative size"), "{negative}");
        let digest = error_of(|manifest| manifest.layers.iter_mut().for_each(|layer| layer.digest = "md5:0".into()));
        assert!(digest.contains("`md5:0` is not a digest"), "{digest}");
    }
}
