//! Tools without our contract: the exported functions of a component that speaks plain WIT. Declarations and JSON Schemas come from the
//! functions' types, and arguments and results are converted both ways.
//!
//! A function is a tool when all its types are plain data. Handles, streams and futures are not; functions that use them are passed over,
//! and named when there is no other. The interfaces of WASI that a component exports, such as `wasi:cli/run`, are no tools.
//!
//! A tool has its function's name. Functions of one name in two interfaces are called `interface-function` instead.

mod json;
mod schema;
mod shape;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, FunctionDeclaration, ItemKind, JsonMap, Tool, ToolError};
use serde_json::Value;
use wasmtime::Store;
use wasmtime::component::types::{ComponentFunc, ComponentItem};
use wasmtime::component::{ComponentExportIndex, Instance, Val};

use super::Component;
use crate::contract::convert::{BadValue, bounded_tool_error, text, wit};
use crate::error::CallError;
use crate::runtime::store::HostState;
use shape::{Budget, Field, Shape};

/// An exported function that takes and gives plain data.
pub(super) struct Function {
    /// Where it is among the exports.
    index: ComponentExportIndex,
    /// `ns:package/interface@1.0.0`; `None` for a function at the top.
    interface: Option<String>,
    name: String,
    params: Vec<Field>,
    answer: Answer,
}

/// What a function gives.
enum Answer {
    /// Nothing.
    Nothing,
    /// Always a value.
    Value(Shape),
    /// A value, or a failure that the model is told.
    Fallible { ok: Option<Box<Shape>>, error: Option<Box<Shape>> },
}

/// What became of a call.
type Outcome = Result<Value, Value>;

/// The functions of a component, each under the name of its tool, and what is wrong with the others.
pub(super) struct Functions {
    pub(super) usable: Vec<(Arc<FunctionDeclaration>, Arc<Function>)>,
    /// A sentence for each function that cannot be a tool.
    pub(super) unusable: Vec<String>,
}

impl Functions {
    /// Looks at everything that the component exports.
    pub(super) fn of(engine: &wasmtime::Engine, code: &wasmtime::component::Component) -> Self {
        let (mut found, mut unusable, mut budget) = (Vec::new(), Vec::new(), Budget::default());
        let mut note = |interface: Option<&str>, name: &str, function: &ComponentFunc| {
            let instance = interface.and_then(|interface| code.get_export_index(None, interface));
            let Some(index) = code.get_export_index(instance.as_ref(), name) else { return };
            match Function::new(index, interface, name, function, &mut budget) {
                Ok(function) => found.push(function),
                Err(reason) => unusable.push(format!("`{name}` {reason}")),
            }
        };
        for (name, export) in code.component_type().exports(engine) {
            match export.ty {
                ComponentItem::ComponentFunc(function) => note(None, name, &function),
                ComponentItem::ComponentInstance(instance) if !is_of_the_system(name) => {
                    for (function, export) in instance.exports(engine) {
                        if let ComponentItem::ComponentFunc(ty) = export.ty {
                            note(Some(name), function, &ty);
                        }
                    }
                }
                _ => {}
            }
        }
        Self { usable: named(found), unusable }
    }
}

/// Interfaces that say how a program is started, not what it can do.
fn is_of_the_system(interface: &str) -> bool {
    interface.starts_with("wasi:")
}

/// Each function with its declaration, under its own name where that is the only one of its kind.
fn named(found: Vec<Function>) -> Vec<(Arc<FunctionDeclaration>, Arc<Function>)> {
    let mut uses: HashMap<String, usize> = HashMap::new();
    for function in &found {
        *uses.entry(function.name.clone()).or_default() += 1;
    }
    let named = found.into_iter().map(|function| {
        let is_alone = uses.get(&function.name) == Some(&1);
        (Arc::new(function.declaration(is_alone)), Arc::new(function))
    });
    named.collect()
}

impl Function {
    fn new(
        index: ComponentExportIndex,
        interface: Option<&str>,
        name: &str,
        function: &ComponentFunc,
        budget: &mut Budget,
    ) -> Result<Self, String> {
        // Methods and constructors are called `[method]thing.act`.
        if name.starts_with('[') {
            return Err("belongs to a resource".into());
        }
        let params = function.params();
        let params = params.map(|(name, ty)| Ok(Field { name: name.into(), shape: Shape::of(&ty, budget)? }));
        let params = params.collect::<Result<_, String>>()?;
        let answer = match function.results().next().map(|ty| Shape::of(&ty, budget)).transpose()? {
            None => Answer::Nothing,
            Some(Shape::Result { ok, error }) => Answer::Fallible { ok, error },
            Some(shape) => Answer::Value(shape),
        };
        Ok(Self { index, interface: interface.map(Into::into), name: name.into(), params, answer })
    }

    fn declaration(&self, is_alone: bool) -> FunctionDeclaration {
        let name = match &self.interface {
            Some(interface) if !is_alone => format!("{}-{}", short(interface), self.name),
            _ => self.name.clone(),
        };
        let whole = match &self.interface {
            Some(interface) => format!("`{}` of `{interface}`", self.name),
            None => format!("`{}`", self.name),
        };
        let response = match &self.answer {
            Answer::Nothing | Answer::Fallible { ok: None, .. } => None,
            Answer::Value(shape) => Some(schema::of(shape)),
            Answer::Fallible { ok: Some(shape), .. } => Some(schema::of(shape)),
        };
        let parameters = Some(schema::of_record(&self.params));
        FunctionDeclaration { name, description: format!("Calls the function {whole}."), parameters, response }
    }

    /// Understands what a function has given.
    fn outcome(&self, given: Option<Val>) -> Result<Outcome, BadValue> {
        let value = |shape: &Option<Box<Shape>>, given: Option<Box<Val>>| match (shape, given) {
            (Some(shape), Some(given)) => json::from_val(shape, *given),
            (None | Some(_), _) => Ok(Value::Null),
        };
        match (&self.answer, given) {
            (Answer::Value(shape), Some(given)) => Ok(Ok(json::from_val(shape, given)?)),
            (Answer::Fallible { ok, .. }, Some(Val::Result(Ok(given)))) => Ok(Ok(value(ok, given)?)),
            (Answer::Fallible { error, .. }, Some(Val::Result(Err(given)))) => Ok(Err(value(error, given)?)),
            (Answer::Nothing | Answer::Value(_) | Answer::Fallible { .. }, _) => Ok(Ok(Value::Null)),
        }
    }
}

/// `interface` of `ns:package/interface@1.0.0`.
fn short(interface: &str) -> &str {
    let name = interface.rsplit('/').next().unwrap_or(interface);
    name.split('@').next().unwrap_or(name)
}

/// A function as a tool: a fresh instance per call.
pub(super) struct FunctionTool {
    pub(super) component: Arc<Component>,
    pub(super) declaration: Arc<FunctionDeclaration>,
    pub(super) function: Arc<Function>,
}

#[async_trait]
impl Tool for FunctionTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    fn qualified_name(&self) -> Cow<'_, str> {
        format!("{}/{}", self.component.name, self.declaration.name).into()
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        let tool = &self.declaration.name;
        let args = json::arguments(&self.function.params, args)
            .map_err(|mismatch| ToolError::Recoverable(format!("the arguments of `{tool}` do not fit: {mismatch}")))?;
        let answer = self.answer(args, cx).await;
        let outcome = answer.map_err(|error| error.into_tool_error(&self.component.name, ItemKind::Tool, tool))?;
        outcome.map_err(|failure| {
            let reason = match failure {
                Value::Null => "it failed and does not say why".into(),
                Value::String(reason) => reason,
                other => text(&other),
            };
            bounded_tool_error(wit::ToolError::Model(reason), tool)
        })
    }
}

impl FunctionTool {
    async fn answer(&self, args: Vec<Val>, cx: &CallContext) -> Result<Outcome, CallError> {
        let function = &self.function;
        let mut given = match function.answer {
            Answer::Nothing => Vec::new(),
            Answer::Value(_) | Answer::Fallible { .. } => vec![Val::Bool(false)],
        };
        let load = |store: &mut Store<HostState>, instance: &Instance| {
            let code = instance.get_func(store, function.index);
            code.ok_or_else(|| wasmtime::format_err!("its function `{}` is not there", function.name))
        };
        let call = self.component.sandbox.call(cx, load, async |accessor, code| {
            code.call_concurrent(accessor, &args, &mut given).await?;
            Ok(given.pop())
        });
        let outcome = function.outcome(call.await?).map_err(|error| CallError::Contract(error.to_string()))?;
        if let Ok(value) = &outcome {
            self.component.check_size(&text(value))?;
        }
        Ok(outcome)
    }
}
