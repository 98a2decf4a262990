//! `#[code_executor]`, `#[summarizer]`, `#[examples]`, `#[model]` and `#[live_model]`: functions with one input that
//! the host calls by name.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Error, ItemFn, Result};

use crate::function::{NameOption, check, check_result, parameters, take_comments};

/// The kind of item that a function becomes.
pub struct ProviderKind {
    /// For messages.
    name: &'static str,
    /// The type of the definition.
    definition: &'static str,
    /// The input, for messages.
    input: &'static str,
    /// The return type, for messages.
    returns: &'static str,
    /// The error type.
    error: &'static str,
    /// The type that the function writes its answer to. `None` if it returns the answer.
    sink: Option<&'static str>,
}

pub const CODE_EXECUTOR: ProviderKind = ProviderKind {
    name: "code executor",
    definition: "CodeExecutor",
    input: "a `CodeInput`",
    returns: "Result<CodeOutput, E>",
    error: "ToolError",
    sink: None,
};

pub const SUMMARIZER: ProviderKind = ProviderKind {
    name: "summarizer",
    definition: "Summarizer",
    input: "a `Vec<Event>`",
    returns: "Result<Option<Content>, E>",
    error: "Error",
    sink: None,
};

pub const EXAMPLES: ProviderKind = ProviderKind {
    name: "example provider",
    definition: "ExampleProvider",
    input: "the query, a `String`",
    returns: "Result<Vec<Example>, E>",
    error: "Error",
    sink: None,
};

pub const MODEL: ProviderKind = ProviderKind {
    name: "model",
    definition: "Model",
    input: "an `LlmRequest` and an `Answer`",
    returns: "Result<(), E>",
    error: "Error",
    sink: Some("Answer"),
};

pub const LIVE_MODEL: ProviderKind = ProviderKind {
    name: "live model",
    definition: "LiveModel",
    input: "an `LlmRequest` and a `LiveConnection`",
    returns: "Result<(), E>",
    error: "Error",
    sink: Some("LiveConnection"),
};

impl ProviderKind {
    pub fn options(&self, input: ParseStream<'_>) -> Result<NameOption> {
        NameOption::parse(self.name, input)
    }

    pub fn expand(&self, name: NameOption, mut function: ItemFn) -> Result<TokenStream> {
        check(&function.sig, self.name)?;
        let comments = take_comments(&mut function.attrs);
        let visibility = std::mem::replace(&mut function.vis, syn::Visibility::Inherited);
        let ident = &function.sig.ident;
        let name = name.or(ident.unraw().to_string());

        let (mut inputs, mut sinks) = (0, 0);
        let mut passed = Vec::new();
        for parameter in parameters(&function.sig)? {
            let value = if parameter.has_type("Context") {
                quote!(cx)
            } else if self.sink.is_some_and(|sink| parameter.has_type(sink)) {
                sinks += 1;
                quote!(answer)
            } else {
                inputs += 1;
                quote!(input)
            };
            passed.push(parameter.passing.pass(&value));
        }
        if inputs != 1 || sinks != usize::from(self.sink.is_some()) {
            let message = format!("this {} takes {}, and optionally a `Context`", self.name, self.input);
            return Err(Error::new_spanned(&function.sig.inputs, message));
        }
        check_result(&function.sig, self.name, self.returns)?;

        let definition = format_ident!("{}", self.definition);
        let error = format_ident!("{}", self.error);
        let closure_inputs =
            if self.sink.is_some() { quote!(mut input, mut answer, cx) } else { quote!(mut input, cx) };
        Ok(quote! {
            #(#comments)*
            #visibility fn #ident() -> ::hatchery_guest::#definition {
                #function
                ::hatchery_guest::#definition {
                    name: #name,
                    #[allow(unused_mut)]
                    run: |#closure_inputs| ::std::boxed::Box::pin(async move {
                        let _ = &cx;
                        #ident(#(#passed),*).await.map_err(::hatchery_guest::#error::from)
                    }),
                }
            }
        })
    }
}
