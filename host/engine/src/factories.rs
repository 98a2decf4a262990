//! Registry of factories by name: the shape of every extension point.

use std::fmt;
use std::sync::Arc;

use hatchery_core::{ItemKind, JsonMap, ResolveError};

/// A function that creates an item from its arguments. The error is a reason for the operator.
type Factory<T> = Arc<dyn Fn(JsonMap) -> Result<T, String> + Send + Sync>;

/// Factories of one kind by name, in order of registration.
pub struct Factories<T> {
    entries: Vec<(String, Factory<T>)>,
    /// Other spellings of a name: the alias, then the name. Of two equal aliases, the last one counts.
    aliases: Vec<(String, String)>,
}

impl<T> Factories<T> {
    /// Registers a factory. It replaces an earlier one of the same name.
    pub fn register(
        &mut self,
        name: impl Into<String>,
        factory: impl Fn(JsonMap) -> Result<T, String> + Send + Sync + 'static,
    ) {
        self.insert(name.into(), Arc::new(factory));
    }

    /// Registers all factories and aliases of `others`. They replace earlier ones of the same name.
    pub fn extend(&mut self, others: Self) {
        for (name, factory) in others.entries {
            self.insert(name, factory);
        }
        self.aliases.extend(others.aliases);
    }

    fn insert(&mut self, name: String, factory: Factory<T>) {
        match self.entries.iter_mut().find(|(registered, _)| *registered == name) {
            Some((_, registered)) => *registered = factory,
            None => self.entries.push((name, factory)),
        }
    }

    /// Registers another spelling of a name. It replaces an earlier alias, and a factory of its name takes precedence
    /// over it. [`Factories::names`] does not list it.
    pub fn register_alias(&mut self, alias: impl Into<String>, name: impl Into<String>) {
        self.aliases.push((alias.into(), name.into()));
    }

    /// Creates an item. `None` if no factory has this name.
    pub fn create(&self, name: &str, args: JsonMap) -> Option<Result<T, String>> {
        self.find(name).map(|factory| factory(args))
    }

    /// Returns true if a factory has this name or alias.
    pub fn contains(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Returns the registered names in order of registration, without aliases.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(name, _)| name.as_str())
    }

    fn find(&self, name: &str) -> Option<&Factory<T>> {
        self.find_registered(name).or_else(|| {
            let (_, name) = self.aliases.iter().rfind(|(alias, _)| alias == name)?;
            self.find_registered(name)
        })
    }

    fn find_registered(&self, name: &str) -> Option<&Factory<T>> {
        self.entries.iter().find(|(registered, _)| registered == name).map(|(_, factory)| factory)
    }

    /// Creates an item without arguments. The error names the registered ones if no item has this name.
    pub(crate) fn resolve(&self, kind: ItemKind, name: &str) -> Result<T, ResolveError> {
        self.resolve_with(kind, name, JsonMap::new())
    }

    /// Like [`Factories::resolve`], with arguments.
    pub(crate) fn resolve_with(&self, kind: ItemKind, name: &str, args: JsonMap) -> Result<T, ResolveError> {
        match self.create(name, args) {
            Some(item) => item.map_err(|reason| ResolveError::Unusable { kind, name: name.into(), reason }),
            None => {
                Err(ResolveError::Unknown { kind, name: name.into(), known: self.names().map(Into::into).collect() })
            }
        }
    }
}

impl<T> Default for Factories<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), aliases: Vec::new() }
    }
}

impl<T> Clone for Factories<T> {
    fn clone(&self) -> Self {
        Self { entries: self.entries.clone(), aliases: self.aliases.clone() }
    }
}

impl<T> fmt::Debug for Factories<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}
