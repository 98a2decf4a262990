//! Expansion of the attribute `#[tool]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Error, ItemFn, LitStr, Result, Signature, Token, Type};

use crate::function::{
    OptionKeys, Parameter, PassingMode, check, comment, last_name, parameters, returns_result, skip_comma,
    take_comments,
};

const OPTIONS: &str = "options of a tool are `name = \"…\"`, `long_running` and `confirm`";

#[derive(Default)]
pub struct Options {
    name: Option<LitStr>,
    long_running: bool,
    confirm: bool,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let (mut keys, mut options) = (OptionKeys::default(), Self::default());
        while !input.is_empty() {
            let key = keys.parse(input)?;
            match key.to_string().as_str() {
                "name" => {
                    input.parse::<Token![=]>()?;
                    options.name = Some(input.parse()?);
                }
                "long_running" => options.long_running = true,
                "confirm" => options.confirm = true,
                _ => return Err(Error::new_spanned(key, OPTIONS)),
            }
            skip_comma(input)?;
        }
        Ok(options)
    }
}

pub fn expand(options: Options, mut function: ItemFn) -> Result<TokenStream> {
    check(&function.sig, "tool")?;
    let comments = take_comments(&mut function.attrs);
    let description = comment(&comments);
    let visibility = std::mem::replace(&mut function.vis, syn::Visibility::Inherited);
    let ident = &function.sig.ident;
    let name = options.name.map_or_else(|| ident.unraw().to_string(), |name| name.value());
    let (long_running, confirm) = (options.long_running, options.confirm);
    let (passed, arguments) = pass_parameters(&function.sig)?;
    let (parameters, read) = match arguments {
        Some(ty) => (
            quote!(|| ::core::option::Option::Some(::hatchery_guest::__private::schema::<#ty>())),
            quote!(let args: #ty = ::hatchery_guest::__private::arguments(#name, &args)?;),
        ),
        None => (quote!(|| ::core::option::Option::None), quote!(let _ = args;)),
    };
    let call = if returns_result(&function.sig) {
        quote!(#ident(#(#passed),*).await.map_err(::hatchery_guest::ToolError::from)?)
    } else {
        quote!(#ident(#(#passed),*).await)
    };
    Ok(quote! {
        #(#comments)*
        #visibility fn #ident() -> ::hatchery_guest::Tool {
            #function
            ::hatchery_guest::Tool {
                name: #name,
                description: #description,
                long_running: #long_running,
                requires_confirmation: #confirm,
                parameters: #parameters,
                run: |args, cx| ::std::boxed::Box::pin(async move {
                    let _ = &cx;
                    #read
                    ::hatchery_guest::__private::result(#name, #call)
                }),
            }
        }
    })
}

/// Returns the expressions for the parameters of a tool, and the type of its arguments.
fn pass_parameters(signature: &Signature) -> Result<(Vec<TokenStream>, Option<&Type>)> {
    let (mut passed, mut arguments) = (Vec::new(), None);
    for parameter in parameters(signature)? {
        if parameter.has_type("ToolContext") {
            passed.push(parameter.passing.pass(&quote!(cx)));
        } else if arguments.is_some() {
            return Err(Error::new_spanned(
                parameter.ty,
                "a tool takes its arguments as one struct; combine them in a struct with `Deserialize` and `JsonSchema`",
            ));
        } else if is_plain(parameter.ty) {
            return Err(Error::new_spanned(
                parameter.ty,
                "a tool takes its arguments as one struct with `Deserialize` and `JsonSchema`, which has a field for each",
            ));
        } else {
            passed.push(by_value(&parameter, "the arguments of a tool")?);
            arguments = Some(parameter.ty);
        }
    }
    Ok((passed, arguments))
}

/// Returns true for a type that is no JSON object, as the arguments of a call always are.
fn is_plain(ty: &Type) -> bool {
    const PLAIN: &[&str] = &[
        "bool", "char", "f32", "f64", "i8", "i16", "i32", "i64", "isize", "str", "u8", "u16", "u32", "u64", "usize",
        "String", "Vec",
    ];
    match ty {
        Type::Path(_) => last_name(ty).is_some_and(|name| PLAIN.contains(&name.as_str())),
        ty => matches!(ty, Type::Array(_) | Type::Slice(_) | Type::Tuple(_)),
    }
}

fn by_value(parameter: &Parameter<'_>, what: &str) -> Result<TokenStream> {
    match parameter.passing {
        PassingMode::Value => Ok(quote!(args)),
        PassingMode::Shared | PassingMode::Mutable => {
            Err(Error::new_spanned(parameter.ty, format!("{what} are taken by value, not by reference")))
        }
    }
}
