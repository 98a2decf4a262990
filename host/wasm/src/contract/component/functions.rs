//! Plain WIT functions as tools, for components that do not use our contract. Declarations and JSON Schemas are
//! derived from the types of the exported functions, and arguments and results are converted in both directions.
//!
//! A function is a tool if all its types are plain data. Functions with handles, streams or futures are skipped, and
//! named in the error if there is no other function. WASI interfaces that a component exports, such as
//! `wasi:cli/run`, are not tools.
//!
//! A tool has the name of its function. Functions with the same name in two interfaces are named `interface-function`
//! instead.

mod json;
mod schema;
mod shape;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::suggestion::suggestion;
use hatchery_core::{CallContext, FunctionDeclaration, ItemKind, JsonMap, Tool, ToolError};
use serde_json::Value;
use wasmtime::Store;
use wasmtime::component::types::{ComponentFunc, ComponentItem};
use wasmtime::component::{ComponentExportIndex, Instance, Val};

use super::Component;
use crate::contract::convert::{BadValue, to_json, to_tool_error, wit};
use crate::contract::progress::with_progress;
use crate::error::CallError;
use crate::runtime::store::{CallOrigin, HostState, run_key};
use shape::{Budget, Field, Shape};

/// An exported function with plain data.
pub(super) struct Function {
    index: ComponentExportIndex,
    /// `ns:package/interface@1.0.0`; `None` for a top-level function.
    interface: Option<String>,
    name: String,
    params: Vec<Field>,
    result: ResultType,
    /// The maximum ratio of the bytes that the result takes to the bytes that Wasmtime counts.
    amplification: usize,
}

/// The result type of a function.
enum ResultType {
    Nothing,
    Value(Shape),
    /// A value, or an error that the model sees.
    Fallible {
        ok: Option<Box<Shape>>,
        error: Option<Box<Shape>>,
    },
}

impl ResultType {
    /// Returns the maximum ratio of the bytes that a result takes to the bytes that Wasmtime counts.
    fn amplification(&self) -> usize {
        match self {
            Self::Nothing => 1,
            Self::Value(shape) => shape.amplification(false),
            Self::Fallible { ok, error } => {
                ok.iter().chain(error).map(|side| side.amplification(false)).max().unwrap_or(1)
            }
        }
    }
}

/// The result of a call, or the error of the function.
type CallResult = Result<Value, Value>;

/// The functions of a component by tool name, and the reasons why others cannot be tools.
pub(super) struct Functions {
    pub(super) usable: Vec<(Arc<FunctionDeclaration>, Arc<Function>)>,
    /// One reason per function that cannot be a tool.
    pub(super) unusable: Vec<String>,
}

impl Functions {
    /// Finds the functions among all exports.
    pub(super) fn find(engine: &wasmtime::Engine, code: &wasmtime::component::Component) -> Self {
        let (mut functions, mut unusable, mut budget) = (Vec::new(), Vec::new(), Budget::default());
        let mut note = |interface: Option<&str>, name: &str, function: &ComponentFunc| {
            let instance = interface.and_then(|interface| code.get_export_index(None, interface));
            let Some(index) = code.get_export_index(instance.as_ref(), name) else { return };
            match Function::new(index, interface, name, function, &mut budget) {
                Ok(function) => functions.push(function),
                Err(reason) => unusable.push(format!("`{name}` {reason}")),
            }
        };
        for (name, export) in code.component_type().exports(engine) {
            match export.ty {
                ComponentItem::ComponentFunc(function) => note(None, name, &function),
                ComponentItem::ComponentInstance(instance) if !is_wasi(name) => {
                    for (function, export) in instance.exports(engine) {
                        if let ComponentItem::ComponentFunc(ty) = export.ty {
                            note(Some(name), function, &ty);
                        }
                    }
                }
                _ => {}
            }
        }
        Self { usable: with_declarations(functions), unusable }
    }

    /// Replaces the descriptions of some functions of a component by descriptions from its settings.
    pub(super) fn with_descriptions(mut self, component: &str, descriptions: &BTreeMap<String, String>) -> Self {
        for (declaration, _) in &mut self.usable {
            if let Some(description) = descriptions.get(&declaration.name) {
                Arc::make_mut(declaration).description.clone_from(description);
            }
        }
        let names: Vec<_> = self.usable.iter().map(|(declaration, _)| declaration.name.as_str()).collect();
        for name in descriptions.keys().filter(|name| !names.contains(&name.as_str())) {
            let hint = suggestion(name, names.iter().copied());
            tracing::warn!("components.{component}.descriptions: there is no function `{name}`{hint}");
        }
        self
    }
}

/// Returns true for interfaces of WASI. They are for starting a program, so their functions are not offered as tools.
fn is_wasi(interface: &str) -> bool {
    interface.starts_with("wasi:")
}

/// Returns each function with its declaration, under its own name if the name is unique.
fn with_declarations(functions: Vec<Function>) -> Vec<(Arc<FunctionDeclaration>, Arc<Function>)> {
    let mut uses: HashMap<String, usize> = HashMap::new();
    for function in &functions {
        *uses.entry(function.name.clone()).or_default() += 1;
    }
    let declared = functions.into_iter().map(|function| {
        let is_unique = uses.get(&function.name) == Some(&1);
        (Arc::new(function.declaration(is_unique)), Arc::new(function))
    });
    declared.collect()
}

impl Function {
    fn new(
        index: ComponentExportIndex,
        interface: Option<&str>,
        name: &str,
        function: &ComponentFunc,
        budget: &mut Budget,
    ) -> Result<Self, String> {
        // Methods and constructors are named `[method]thing.act`.
        if name.starts_with('[') {
            return Err("belongs to a resource".into());
        }
        let params = function.params();
        let params = params.map(|(name, ty)| Ok(Field { name: name.into(), shape: Shape::from_type(&ty, budget)? }));
        let params = params.collect::<Result<_, String>>()?;
        let result = match function.results().next().map(|ty| Shape::from_type(&ty, budget)).transpose()? {
            None => ResultType::Nothing,
            Some(Shape::Result { ok, error }) => ResultType::Fallible { ok, error },
            Some(shape) => ResultType::Value(shape),
        };
        let amplification = result.amplification();
        Ok(Self { index, interface: interface.map(Into::into), name: name.into(), params, result, amplification })
    }

    fn declaration(&self, is_unique: bool) -> FunctionDeclaration {
        let name = match &self.interface {
            Some(interface) if !is_unique => format!("{}-{}", short(interface), self.name),
            _ => self.name.clone(),
        };
        let full_name = match &self.interface {
            Some(interface) => format!("`{}` of `{interface}`", self.name),
            None => format!("`{}`", self.name),
        };
        let response = match &self.result {
            ResultType::Nothing | ResultType::Fallible { ok: None, .. } => None,
            ResultType::Value(shape) => Some(schema::json_schema(shape)),
            ResultType::Fallible { ok: Some(shape), .. } => Some(schema::json_schema(shape)),
        };
        let parameters = Some(schema::record_schema(&self.params));
        FunctionDeclaration { name, description: format!("Calls the function {full_name}."), parameters, response }
    }

    /// Converts the result of a function.
    fn result(&self, returned: Option<Val>) -> Result<CallResult, BadValue> {
        let value = |shape: &Option<Box<Shape>>, returned: Option<Box<Val>>| match (shape, returned) {
            (Some(shape), Some(returned)) => json::from_val(shape, *returned),
            (None | Some(_), _) => Ok(Value::Null),
        };
        match (&self.result, returned) {
            (ResultType::Value(shape), Some(returned)) => Ok(Ok(json::from_val(shape, returned)?)),
            (ResultType::Fallible { ok, .. }, Some(Val::Result(Ok(returned)))) => Ok(Ok(value(ok, returned)?)),
            (ResultType::Fallible { error, .. }, Some(Val::Result(Err(returned)))) => Ok(Err(value(error, returned)?)),
            (ResultType::Nothing | ResultType::Value(_) | ResultType::Fallible { .. }, _) => Ok(Ok(Value::Null)),
        }
    }
}

/// Returns `interface` of `ns:package/interface@1.0.0`.
fn short(interface: &str) -> &str {
    let name = interface.rsplit('/').next().unwrap_or(interface);
    name.split('@').next().unwrap_or(name)
}

/// A function as a tool: one instance per call.
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
        let args = json::arguments(&self.function.params, args).map_err(|mismatch| {
            ToolError::Recoverable(format!("the arguments of `{tool}` do not match their types: {mismatch}"))
        })?;
        let answer = self.call_function(args, cx).await;
        let result = answer.map_err(|error| error.into_tool_error(&self.component.name, ItemKind::Tool, tool))?;
        result.map_err(|failure| {
            let reason = match failure {
                Value::Null => "it failed without a reason".into(),
                Value::String(reason) => reason,
                other => to_json(&other),
            };
            to_tool_error(wit::ToolError::Recoverable(reason), tool)
        })
    }
}

impl FunctionTool {
    async fn call_function(&self, args: Vec<Val>, cx: &CallContext) -> Result<CallResult, CallError> {
        let function = &self.function;
        let mut returned = match function.result {
            ResultType::Nothing => Vec::new(),
            ResultType::Value(_) | ResultType::Fallible { .. } => vec![Val::Bool(false)],
        };
        let max_copied = self.component.sandbox.max_copied() / function.amplification;
        let load = move |store: &mut Store<HostState>, instance: &Instance| {
            store.set_hostcall_fuel(max_copied);
            let code = instance.get_func(store, function.index);
            code.ok_or_else(|| wasmtime::format_err!("its function `{}` is not there", function.name))
        };
        let call = |origin: CallOrigin| {
            self.component.sandbox.call(origin, load, |accessor, code| {
                Box::pin(async move {
                    code.call_concurrent(accessor, &args, &mut returned).await?;
                    Ok(returned.pop())
                })
            })
        };
        let returned = with_progress(cx, &self.declaration.name, call).await?;
        let json_size = returned.as_ref().map_or(0, json::size);
        let _reservation = self.component.reserve_parsed(Some(run_key(cx)), json_size)?;
        let result = function.result(returned).map_err(|error| CallError::Contract(error.to_string()))?;
        if let Ok(value) = &result {
            self.component.check_size(&to_json(value))?;
        }
        Ok(result)
    }
}
