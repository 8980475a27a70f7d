"""What the scanner of HTML looks up: tags, character references, and words in classes and ids."""

from collections.abc import Iterable
from functools import cache
from html.entities import html5
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

VOID, RAW, BLOCK, UNSEEN, CLOSES_PARAGRAPH, SCOPE, TABLE_PART = (1 << bit for bit in range(7))
"""What is known of a tag: it has no end; it holds no mark-up; it is an element of the tree; nothing in it is shown;
it ends an open ``p``; end tags outside of it do not close what is inside; it belongs to a table."""

_PLAIN_BLOCKS = (
    "address article aside blockquote center details dialog dd dir div dl dt fieldset figcaption figure footer form "
    "frameset h1 h2 h3 h4 h5 h6 header hgroup hr legend li main menu nav ol optgroup p pre search section summary ul"
)
_TABLE_PARTS = "table caption colgroup thead tbody tfoot tr td th"
_RAW = "script style textarea title xmp iframe noembed noframes"
_UNSEEN_BLOCKS = "head noscript svg math canvas object applet video audio select button template datalist map"
_VOID = "area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr"
_LINES = "html body a pre br li"
_OPEN_PARAGRAPHS = "legend optgroup"
_SCOPES = "html table td th caption object template applet svg"

_ALL = f"{_LINES} {_PLAIN_BLOCKS} {_TABLE_PARTS} {_RAW} {_UNSEEN_BLOCKS} {_VOID}"

TAGS = ("", "custom", *dict.fromkeys(_ALL.split()))
"""Names by their code; 0 is that of all inline tags but ``a``, 1 that of names with a hyphen. The model knows codes."""

CODE = {name: code for code, name in enumerate(TAGS)}
CUSTOM = CODE["custom"]

LETTERS = 12
"""The longest name of a tag; longer ones are not known."""

REFERENCE_BITS = 13


_WORDS = {
    "comment": "comment,disqus,respond, reply, replies,discussion,kommentar,feedback,forum,livefyre,guestbook",
    "navigation": " nav,navi,menu,pagination,pager,paging, skip,sitemap,tabs,breadcrumb,crumb",
    "footer": "foot,bottom,copyright,imprint,colophon, legal,impressum",
    "header": "header,masthead,topbar,banner,branding,logo, top ,toolbar,kopf",
    "side": (
        "sidebar, side ,aside,rail,complementary,widget,secondary,tertiary,rightcol,leftcol,right col,"
        "left col,marginal, right , left "
    ),
    "share": "share,sharing,social,twitter,facebook,pinterest,addthis, sns,follow,whatsapp,linkedin,jetpack",
    "subscribe": (
        "subscri,newsletter,signup,sign up,mailing,login,log in,register,account,paywall,donat, cta,call to,abo ,member"
    ),
    "related": (
        "related,recommend,similar,popular,trending,read more,readmore, also ,latest,recent,outbrain,taboola,"
        "recirc,most read,mostread,you may,mehr zum,weiter,similaire,verwandt"
    ),
    "teaser": "teaser,promo, more, next, prev,preview,highlight,featured,suggest",
    "advertisement": (
        " ad , ads ,advert,sponsor,adsense, dfp,werbung,anzeige,affiliate,commercial,adslot,ad slot,ad unit,"
        "ad container,ad wrapper,promotion"
    ),
    "date": "meta,date, time,timestamp,published,posted, info,stats,count",
    "author": "author,byline, bio,profile,avatar,vcard,contributor,autor,credits",
    "tag": " tag , tags ,taglist,tag list,tagcloud,tag cloud,categor,topic,keyword,label,hashtag,schlagw",
    "caption": "caption, credit ,figure,bildunter,legend",
    "image": (
        "gallery,slideshow,carousel,slider,image,photo, img,media,video,player,embed,iframe,podcast,audio,galerie,thumb"
    ),
    "hidden": (
        "hidden,screen reader,screenreader, sr only,visually,noprint,no print,print only,invisible,modal,"
        "popup,overlay,tooltip,dropdown,lightbox,dialog,offcanvas,off canvas,noscript"
    ),
    "notice": "cookie,consent,gdpr,privacy,notice,alert,message,warning,disclaimer,error,hint",
    "index": (
        " toc,table of contents, index,jump,anchor,infobox,navbox,reference,footnote,citation,edit section,"
        "editsection,hatnote,catlinks"
    ),
    "form": "form ,search,filter,input,button, btn,rating, vote, poll ,quiz,survey,review,captcha,contact",
    "article": "article,story, blog,news ,recipe,entry,artikel,beitrag,articulo,noticia",
    "content": (
        "content,text,body, copy,richtext,prose,markdown,paragraph,inhalt,contenu,contenido,wysiwyg,description"
    ),
    "main": " main,primary,center,column,container,wrapper,layout,page",
    "post": "post,single,hentry,permalink,postbody,post body,node ",
    "title": "title,headline,heading,kicker,rubric,slug,titre,ueberschrift",
    "list": " list,grid,card, item, tile, box,module,panel,feed,archive,loop",
}
GROUPS = {name: tuple(words.split(",")) for name, words in _WORDS.items()}
"""Words in classes, ids and roles by what they say of an element; a space is the begin or end of a word."""

HIDDEN = list(GROUPS).index("hidden")
"""The group that attributes name, too: ``hidden``, ``aria-hidden``, and styles that show nothing."""


class Markup(NamedTuple):
    """The tables of the scanner."""

    keys: npt.NDArray[np.uint64]
    """Shape (256,): names of tags as numbers, by their hash; 0 where there is none."""
    codes: npt.NDArray[np.uint8]
    """Shape (256,): their codes."""
    kinds: npt.NDArray[np.int64]
    """Shape (tags,): what is known of a tag."""
    reference_keys: npt.NDArray[np.uint64]
    """Shape (2**13,): names of character references as hashes, by their hash."""
    references: npt.NDArray[np.uint8]
    """Shape (2**13, 8): the length of what they stand for, and its UTF-8."""
    steps: npt.NDArray[np.int16]
    """Shape (states, 27): the next state after a letter, or after what is not one, column 0."""
    found: npt.NDArray[np.int64]
    """Shape (states,): the groups of words that end here, a bit each."""


def name_key(name: str) -> int:
    """Return the name of a tag as a number, as the scanner computes it: five bits a character."""
    key = 0
    for character in name:
        key = key << 5 | (ord(character) - 96 if character.isalpha() else ord(character) - ord("0") + 26)
    return key


def reference_hash(name: bytes) -> int:
    """Return the hash of a character reference's name, FNV-1a of 64 bits, as the scanner computes it."""
    value = 0xCBF29CE484222325
    for byte in name:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def _kind(name: str) -> int:
    blocks, parts = _PLAIN_BLOCKS.split(), _TABLE_PARTS.split()
    kind = VOID * (name in _VOID.split()) | RAW * (name in _RAW.split()) | UNSEEN * (name in _UNSEEN_BLOCKS.split())
    kind |= BLOCK * (name in (*blocks, *parts, *_UNSEEN_BLOCKS.split(), "html", "body", "custom"))
    kind |= CLOSES_PARAGRAPH * ((name in blocks or name == "table") and name not in _OPEN_PARAGRAPHS.split())
    return kind | SCOPE * (name in _SCOPES.split()) | TABLE_PART * (name in parts and name != "table")


def _automaton(words: Iterable[tuple[int, str]]) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int64]]:
    """Return the automaton of Aho and Corasick that finds words of letters; a space is anything but a letter."""
    children: list[dict[int, int]] = [{}]
    own = [0]
    for group, word in words:
        state = 0
        for character in word:
            letter = 0 if character == " " else ord(character) - 96
            if letter not in children[state]:
                children[state][letter] = len(children)
                children.append({})
                own.append(0)
            state = children[state][letter]
        own[state] |= 1 << group
    steps = np.zeros((len(children), 27), np.int16)
    found, fallback, queue = np.array(own, np.int64), [0] * len(children), [0]
    for state in queue:
        if state:
            steps[state] = steps[fallback[state]]
            found[state] |= found[fallback[state]]
        for letter, child in children[state].items():
            fallback[child] = int(steps[state, letter]) if state else 0
            steps[state, letter] = child
            queue.append(child)
    return steps, found


@cache
def load_markup() -> Markup:
    """Return the tables; they take some milliseconds."""
    keys, codes = np.zeros(256, np.uint64), np.zeros(256, np.uint8)
    for code, name in enumerate(TAGS[2:], 2):
        at = tag_slot(name_key(name))
        while keys[at]:
            at = at + 1 & 255
        keys[at], codes[at] = name_key(name), code
    size = 1 << REFERENCE_BITS
    reference_keys, references = np.zeros(size, np.uint64), np.zeros((size, 8), np.uint8)
    for name, text in html5.items():
        key = reference_hash(name.encode())
        at = key >> 64 - REFERENCE_BITS
        while reference_keys[at]:
            at = at + 1 & size - 1
        stands_for = text.encode()
        reference_keys[at], references[at, 0] = key, len(stands_for)
        references[at, 1 : 1 + len(stands_for)] = list(stands_for)
    steps, found = _automaton((number, word) for number, words in enumerate(GROUPS.values()) for word in words)
    return Markup(keys, codes, np.array([_kind(name) for name in TAGS]), reference_keys, references, steps, found)


def tag_slot(key: int) -> int:
    """Return where a name is looked for first."""
    return (key * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF) >> 56
