//! Expansion of the attribute `#[callback]`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Ident, ItemFn, Result};

use crate::function::{NameOption, check, pascal_case, take_comments};
use crate::point::HookPoint;

pub struct Options {
    point: HookPoint,
    name: NameOption,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let ident: Ident = input.parse().map_err(|error| Error::new(error.span(), points()))?;
        let point = HookPoint::find_callback(&ident).ok_or_else(|| Error::new_spanned(&ident, points()))?;
        crate::function::skip_comma(input)?;
        Ok(Self { point, name: NameOption::parse("callback", input)? })
    }
}

fn points() -> String {
    format!("a callback is for one of {}, as in `#[callback(before_tool)]`", HookPoint::callback_names())
}

pub fn expand(options: Options, mut function: ItemFn) -> Result<TokenStream> {
    check(&function.sig, "callback")?;
    let comments = take_comments(&mut function.attrs);
    let visibility = std::mem::replace(&mut function.vis, syn::Visibility::Inherited);
    let ident = &function.sig.ident;
    let name = options.name.or(ident.unraw().to_string());
    let point = format_ident!("{}", pascal_case(options.point.name));
    let closure = options.point.closure("callback", &function.sig, &quote!(#ident))?;
    Ok(quote! {
        #(#comments)*
        #visibility fn #ident() -> ::hatchery_guest::Callback<::hatchery_guest::#point> {
            #function
            ::hatchery_guest::Callback { name: #name, point: ::hatchery_guest::#point(#closure) }
        }
    })
}
