//! `#[callback]`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::parse::{Parse, ParseStream};
use syn::{Error, Ident, ItemFn, LitStr, Result, Token};

use crate::function::{Parameter, Passing, check, parameters, skip_comma, take_comments};

const POINTS: &str = "a callback is for one of `before_agent`, `after_agent`, `before_model`, `after_model`, \
                      `before_tool` and `after_tool`, as in `#[callback(before_tool)]`";

pub struct Options {
    point: Point,
    name: Option<LitStr>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Point {
    BeforeAgent,
    AfterAgent,
    BeforeModel,
    AfterModel,
    BeforeTool,
    AfterTool,
}

impl Point {
    fn parse(ident: &Ident) -> Option<Self> {
        Some(match ident.to_string().as_str() {
            "before_agent" => Self::BeforeAgent,
            "after_agent" => Self::AfterAgent,
            "before_model" => Self::BeforeModel,
            "after_model" => Self::AfterModel,
            "before_tool" => Self::BeforeTool,
            "after_tool" => Self::AfterTool,
            _ => return None,
        })
    }

    fn type_name(self) -> Ident {
        format_ident!(
            "{}",
            match self {
                Self::BeforeAgent => "BeforeAgent",
                Self::AfterAgent => "AfterAgent",
                Self::BeforeModel => "BeforeModel",
                Self::AfterModel => "AfterModel",
                Self::BeforeTool => "BeforeTool",
                Self::AfterTool => "AfterTool",
            }
        )
    }

    /// How many parameters it takes beside the context, and what they are.
    fn inputs(self) -> (usize, &'static str) {
        match self {
            Self::BeforeAgent | Self::AfterAgent => (0, "nothing but a `CallbackContext`"),
            Self::BeforeModel => (1, "an `LlmRequest`"),
            Self::AfterModel => (1, "an `LlmResponse`"),
            Self::BeforeTool => (1, "a `ToolCall`"),
            Self::AfterTool => (2, "a `ToolCall` and the answer, a `Value`"),
        }
    }
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let ident: Ident = input.parse().map_err(|error| Error::new(error.span(), POINTS))?;
        let point = Point::parse(&ident).ok_or_else(|| Error::new_spanned(&ident, POINTS))?;
        skip_comma(input)?;
        let mut name = None;
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            if key != "name" {
                return Err(Error::new_spanned(key, "the option of a callback is `name = \"…\"`"));
            }
            input.parse::<Token![=]>()?;
            name = Some(input.parse()?);
            skip_comma(input)?;
        }
        Ok(Self { point, name })
    }
}

pub fn expand(options: Options, mut function: ItemFn) -> Result<TokenStream> {
    check(&function, "callback")?;
    let comments = take_comments(&mut function);
    let visibility = std::mem::replace(&mut function.vis, syn::Visibility::Inherited);
    let ident = &function.sig.ident;
    let name = options.name.map_or_else(|| ident.to_string(), |name| name.value());
    let point = options.point;
    let point_type = point.type_name();
    let names = [quote!(first), quote!(second)];

    let mut inputs: Vec<Parameter<'_>> = Vec::new();
    let mut passed = Vec::new();
    for parameter in parameters(&function)? {
        if parameter.is("CallbackContext") {
            passed.push(parameter.passing.pass(&quote!(cx)));
        } else {
            passed.push(names.get(inputs.len()).map(|name| parameter.passing.pass(name)).unwrap_or_default());
            inputs.push(parameter);
        }
    }
    let (wanted, what) = point.inputs();
    if inputs.len() != wanted {
        return Err(Error::new_spanned(&function.sig.inputs, format!("this callback takes {what}")));
    }

    let pattern = match wanted {
        0 => quote!(()),
        1 => quote!(mut first),
        _ => quote!((mut first, mut second)),
    };
    let call = quote!(#ident(#(#passed),*).await.map_err(::hatchery_guest::Error::from));
    let body = body(point, inputs.first(), &call);
    Ok(quote! {
        #(#comments)*
        #visibility fn #ident() -> ::hatchery_guest::Callback<::hatchery_guest::#point_type> {
            #function
            ::hatchery_guest::Callback {
                name: #name,
                point: ::hatchery_guest::#point_type(|input, cx| ::std::boxed::Box::pin(async move {
                    let _ = &cx;
                    #[allow(unused_mut)]
                    let #pattern = input;
                    #body
                })),
            }
        }
    })
}

/// Calls the function and says what its answer means.
fn body(point: Point, first: Option<&Parameter<'_>>, call: &TokenStream) -> TokenStream {
    let private = quote!(::hatchery_guest::__private);
    let go_on = match first {
        Some(Parameter { passing: Passing::Mutable, .. }) => quote!(#private::Before::Revise(first)),
        _ => quote!(#private::Before::Proceed),
    };
    match point {
        Point::BeforeAgent | Point::AfterAgent | Point::AfterModel => call.clone(),
        Point::AfterTool => quote!(#call?.map(#private::value).transpose()),
        Point::BeforeModel => quote! {
            ::core::result::Result::Ok(match #call? {
                ::core::option::Option::Some(answer) => #private::Before::Respond(answer),
                ::core::option::Option::None => #go_on,
            })
        },
        Point::BeforeTool => quote! {
            ::core::result::Result::Ok(match #call? {
                ::core::option::Option::Some(answer) => #private::Before::Respond(#private::value(answer)?),
                ::core::option::Option::None => #go_on,
            })
        },
    }
}
