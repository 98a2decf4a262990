//! Memory that Wasmtime takes for the core instances of a component, besides their linear memories and tables, read
//! from the bytes of the component.
//!
//! A module with a million globals takes 16 MiB for each of its instances, which Wasmtime itself only limits where it
//! allocates instances from a pool.

use wasmparser::{
    ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentOuterAliasKind, ComponentTypeRef, Encoding,
    Instance, Parser, Payload,
};

/// Bytes of a core instance in addition to its items.
const INSTANCE: u64 = 512;

/// Bytes of a type or a segment.
const SMALL_ITEM: u64 = 16;

/// Bytes of a global or a tag.
const GLOBAL: u64 = 16;

/// Bytes of a function that is referred to.
const FUNCTION: u64 = 32;

/// Bytes of an import, which may be a function that is referred to.
const IMPORT: u64 = 64;

/// Bytes of a memory or a table.
const MEMORY: u64 = 256;

/// Number of core instances that a component of another origin may have.
const UNKNOWN_INSTANCES: u64 = 1000;

/// Returns an upper bound of the bytes that the core instances of a component take. `None` if it cannot be parsed.
pub(crate) fn instance_size(bytes: &[u8]) -> Option<u64> {
    let mut reader = Reader::default();
    for payload in Parser::new(0).parse_all(bytes) {
        reader.read(payload.ok()?)?;
    }
    let Size { bytes, unknown } = reader.total;
    Some(bytes.saturating_add(unknown.saturating_mul(reader.largest)))
}

/// The size of an instance of a module or a component.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    bytes: u64,
    /// Number of instances of modules that only linking determines.
    unknown: u64,
}

impl Size {
    fn add(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.unknown = self.unknown.saturating_add(other.unknown);
    }
}

/// A module or a component, up to where it is read.
#[derive(Default)]
struct Scope {
    is_module: bool,
    size: Size,
    /// Sizes by index.
    modules: Vec<Size>,
    components: Vec<Size>,
}

impl Scope {
    fn new(encoding: Encoding) -> Self {
        let is_module = encoding == Encoding::Module;
        let bytes = if is_module { INSTANCE } else { 0 };
        Self { is_module, size: Size { bytes, unknown: 0 }, ..Self::default() }
    }

    fn add_unknown_module(&mut self) {
        self.modules.push(Size { bytes: 0, unknown: 1 });
    }

    fn add_unknown_component(&mut self) {
        self.components.push(Size { bytes: 0, unknown: UNKNOWN_INSTANCES });
    }

    fn module(&self, index: u32) -> Option<Size> {
        self.modules.get(index as usize).copied()
    }

    fn component(&self, index: u32) -> Option<Size> {
        self.components.get(index as usize).copied()
    }
}

#[derive(Default)]
struct Reader {
    /// The innermost is the last one.
    scopes: Vec<Scope>,
    /// Bytes of an instance of the largest module.
    largest: u64,
    /// The size of the outermost component, once it is read.
    total: Size,
}

impl Reader {
    /// Reads the next part. `None` if it refers to something that does not exist.
    fn read(&mut self, payload: Payload<'_>) -> Option<()> {
        match payload {
            Payload::Version { encoding, .. } => self.scopes.push(Scope::new(encoding)),
            Payload::End(_) => self.leave()?,
            Payload::TypeSection(section) => self.add(section.count(), SMALL_ITEM)?,
            Payload::ImportSection(section) => self.add(section.count(), IMPORT)?,
            Payload::FunctionSection(section) => self.add(section.count(), FUNCTION)?,
            Payload::TableSection(section) => self.add(section.count(), MEMORY)?,
            Payload::MemorySection(section) => self.add(section.count(), MEMORY)?,
            Payload::TagSection(section) => self.add(section.count(), GLOBAL)?,
            Payload::GlobalSection(section) => self.add(section.count(), GLOBAL)?,
            Payload::ElementSection(section) => self.add(section.count(), SMALL_ITEM)?,
            Payload::DataSection(section) => self.add(section.count(), SMALL_ITEM)?,
            Payload::InstanceSection(section) => {
                for instance in section {
                    if let Instance::Instantiate { module_index, .. } = instance.ok()? {
                        let scope = self.scopes.last_mut()?;
                        let size = scope.module(module_index)?;
                        scope.size.add(size);
                    }
                }
            }
            Payload::ComponentInstanceSection(section) => {
                for instance in section {
                    if let ComponentInstance::Instantiate { component_index, .. } = instance.ok()? {
                        let scope = self.scopes.last_mut()?;
                        let size = scope.component(component_index)?;
                        scope.size.add(size);
                    }
                }
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section {
                    self.add_alias(&alias.ok()?)?;
                }
            }
            Payload::ComponentImportSection(section) => {
                let scope = self.scopes.last_mut()?;
                for import in section {
                    match import.ok()?.ty {
                        ComponentTypeRef::Module(_) => scope.add_unknown_module(),
                        ComponentTypeRef::Component(_) => scope.add_unknown_component(),
                        _ => {}
                    }
                }
            }
            // What is exported gets another index.
            Payload::ComponentExportSection(section) => {
                let scope = self.scopes.last_mut()?;
                for export in section {
                    let export = export.ok()?;
                    match export.kind {
                        ComponentExternalKind::Module => {
                            let size = scope.module(export.index)?;
                            scope.modules.push(size);
                        }
                        ComponentExternalKind::Component => {
                            let size = scope.component(export.index)?;
                            scope.components.push(size);
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        Some(())
    }

    /// Adds items to the innermost module.
    fn add(&mut self, count: u32, each: u64) -> Option<()> {
        let bytes = u64::from(count).saturating_mul(each);
        self.scopes.last_mut()?.size.add(Size { bytes, unknown: 0 });
        Some(())
    }

    fn add_alias(&mut self, alias: &ComponentAlias<'_>) -> Option<()> {
        match *alias {
            ComponentAlias::Outer { kind, count, index } => {
                let outer = self.scopes.iter().rev().nth(count as usize)?;
                match kind {
                    ComponentOuterAliasKind::CoreModule => {
                        let size = outer.module(index)?;
                        self.scopes.last_mut()?.modules.push(size);
                    }
                    ComponentOuterAliasKind::Component => {
                        let size = outer.component(index)?;
                        self.scopes.last_mut()?.components.push(size);
                    }
                    ComponentOuterAliasKind::CoreType | ComponentOuterAliasKind::Type => {}
                }
            }
            ComponentAlias::InstanceExport { kind: ComponentExternalKind::Module, .. } => {
                self.scopes.last_mut()?.add_unknown_module();
            }
            ComponentAlias::InstanceExport { kind: ComponentExternalKind::Component, .. } => {
                self.scopes.last_mut()?.add_unknown_component();
            }
            ComponentAlias::InstanceExport { .. } | ComponentAlias::CoreInstanceExport { .. } => {}
        }
        Some(())
    }

    /// Ends the innermost scope.
    fn leave(&mut self) -> Option<()> {
        let Scope { is_module, size, .. } = self.scopes.pop()?;
        if is_module {
            self.largest = self.largest.max(size.bytes);
        }
        match self.scopes.last_mut() {
            Some(outer) if is_module => outer.modules.push(size),
            Some(outer) => outer.components.push(size),
            None => self.total = size,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of an instance of [`MODULE`].
    const SIZE: u64 = INSTANCE + 3 * GLOBAL;

    const MODULE: &str =
        "(core module $m (global i32 (i32.const 0)) (global i32 (i32.const 0)) (global i32 (i32.const 0)))";

    fn size(items: &str) -> u64 {
        instance_size(&wat::parse_str(format!("(component $top {MODULE} {items})")).unwrap()).unwrap()
    }

    #[test]
    fn each_instance_of_a_module_counts() {
        let instance = "(core instance (instantiate $m))";
        assert_eq!(size(""), 0);
        assert_eq!(size(instance), SIZE);
        assert_eq!(size(&instance.repeat(30)), 30 * SIZE);
        let functions = "(core module $f (func) (func) (memory 1)) (core instance (instantiate $f))";
        assert_eq!(size(functions), INSTANCE + SMALL_ITEM + 2 * FUNCTION + MEMORY);
    }

    #[test]
    fn instances_of_nested_components_are_multiplied() {
        let instance = "(core instance (instantiate $c))".repeat(2);
        let inner = format!("(component $inner (alias outer $outer $b (core module $c)) {instance})");
        let instances = "(instance (instantiate $inner))".repeat(2);
        let outer = format!("(component $outer (alias outer $top $m (core module $b)) {inner} {instances})");
        let instances = "(instance (instantiate $outer))".repeat(2);
        assert_eq!(size(&format!("{outer} {instances}")), 8 * SIZE);
    }

    #[test]
    fn a_module_that_is_passed_on_counts_as_the_largest_one() {
        let inner = "(component $c (import \"m\" (core module $i)) (core instance (instantiate $i)))";
        let instances = "(instance (instantiate $c (with \"m\" (core module $m))))".repeat(2);
        assert_eq!(size(&format!("{inner} {instances}")), 2 * SIZE);
    }

    #[test]
    fn what_cannot_be_parsed_has_no_size() {
        assert_eq!(instance_size(b"no wasm"), None);
    }
}
