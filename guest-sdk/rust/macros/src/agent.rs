//! Expansion of the attribute `#[agent]`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, ItemFn, LitStr, Result, Token, bracketed};

use crate::function::{
    OptionKeys, check, comment, other_than_result, parameters, returns_nothing, skip_comma, take_comments,
};

const OPTIONS: &str = "options of a custom agent are `name = \"…\"`, `description = \"…\"`, `model = \"…\"`, and the lists \
                       `sub_agents = […]`, `tools = […]`, `before_agent = […]`, `after_agent = […]` and `on_agent_error = […]`";

#[derive(Default)]
pub struct Options {
    keys: OptionKeys,
    name: Option<LitStr>,
    /// Method calls on the builder.
    builder: Vec<TokenStream>,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut options = Self::default();
        while !input.is_empty() {
            let key = options.keys.parse(input)?;
            input.parse::<Token![=]>()?;
            match key.to_string().as_str() {
                "name" => options.name = Some(input.parse()?),
                "description" | "model" => {
                    let text: LitStr = input.parse()?;
                    options.builder.push(quote!(.#key(#text)));
                }
                "sub_agents" => options.list("sub_agent", input)?,
                "tools" => options.list("tool", input)?,
                "before_agent" | "after_agent" | "on_agent_error" => options.list(&key.to_string(), input)?,
                _ => return Err(Error::new_spanned(key, OPTIONS)),
            }
            skip_comma(input)?;
        }
        Ok(options)
    }
}

impl Options {
    fn list(&mut self, method: &str, input: ParseStream<'_>) -> Result<()> {
        let items;
        bracketed!(items in input);
        let method = format_ident!("{method}");
        let items = Punctuated::<Expr, Token![,]>::parse_terminated(&items)?;
        self.builder.extend(items.iter().map(|item| quote!(.#method(#item))));
        Ok(())
    }
}

pub fn expand(options: Options, function: ItemFn) -> Result<TokenStream> {
    if function.sig.asyncness.is_some() {
        return expand_custom_agent(options, function);
    }
    match options.keys.first() {
        Some(option) => {
            Err(Error::new_spanned(option, "options are for an `async fn`; use the methods of the builder instead"))
        }
        None => Ok(expand_definition(function)),
    }
}

/// Expands a function that returns an agent definition.
fn expand_definition(mut function: ItemFn) -> TokenStream {
    let comments = take_comments(&mut function.attrs);
    let description = comment(&comments);
    let visibility = std::mem::replace(&mut function.vis, syn::Visibility::Inherited);
    let (ident, output) = (&function.sig.ident, &function.sig.output);
    quote! {
        #(#comments)*
        #visibility fn #ident() #output {
            #function
            #ident().or_description(#description)
        }
    }
}

/// Expands a function that is the code of a custom agent.
fn expand_custom_agent(options: Options, mut function: ItemFn) -> Result<TokenStream> {
    let comments = take_comments(&mut function.attrs);
    let description = comment(&comments);
    let visibility = std::mem::replace(&mut function.vis, syn::Visibility::Inherited);
    let ident = &function.sig.ident;
    check(&function.sig, "custom agent")?;
    let mut passed = Vec::new();
    for parameter in parameters(&function.sig)? {
        if !parameter.has_type("AgentContext") {
            return Err(Error::new_spanned(
                parameter.ty,
                "a custom agent takes no parameters except an `AgentContext`",
            ));
        }
        passed.push(parameter.passing.pass(&quote!(cx)));
    }
    let call = if returns_nothing(&function.sig) {
        quote!({ #ident(#(#passed),*).await; ::core::result::Result::Ok(()) })
    } else if let Some(other) = other_than_result(&function.sig) {
        let message = "a custom agent returns `Result<(), E>` or nothing; send its answer with `cx.say(…)`";
        return Err(Error::new_spanned(other, message));
    } else {
        // The name of the type is unknown: it can be an alias of `Result`.
        quote!(#ident(#(#passed),*).await.map_err(::hatchery_guest::Error::from))
    };
    let name = options.name.map_or_else(|| ident.unraw().to_string(), |name| name.value());
    let builder = options.builder;
    Ok(quote! {
        #(#comments)*
        #visibility fn #ident() -> ::hatchery_guest::CustomAgent {
            // The block keeps the inner function out of scope: names in the options refer to items outside.
            let agent = {
                #function
                ::hatchery_guest::CustomAgent::new(#name, |cx| async move {
                    let _ = &cx;
                    #call
                })
            };
            agent #(#builder)* .or_description(#description)
        }
    })
}
