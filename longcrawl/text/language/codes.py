"""How documents name languages: codes of two and three letters, scripts, and what they have to do with each other."""

import re
from functools import lru_cache
from typing import NamedTuple

_TAG = re.compile(r"(?P<language>[a-z]{2,3})(?P<rest>(?:[-_][a-z0-9]{1,8})*)", re.IGNORECASE)
_SCRIPT = re.compile(r"[-_]([a-z]{4})(?![a-z0-9])", re.IGNORECASE)


class Tag(NamedTuple):
    """A language and, where it was named, a script."""

    language: str
    """ISO 639-3."""
    script: str | None
    """ISO 15924."""

    @property
    def wide(self) -> str:
        """The macrolanguage of a language that is its main member: Mandarin is Chinese."""
        return _MACROLANGUAGES.get(self.language, self.language)


@lru_cache(maxsize=8192)
def parse_tag(name: str) -> Tag | None:
    """Read a name such as fr, fra, fra_Latn, fr-FR or zh-Hans-CN, of which region and variants do not matter.

    >>> parse_tag("zh-Hans-CN")
    Tag(language='zho', script='Hans')
    """
    match = _TAG.fullmatch(name)
    if match is None:
        return None
    language = match["language"].lower()
    script = _SCRIPT.search(match["rest"])
    return Tag(_THREE_LETTERS.get(language, language), script[1].title() if script else None)


def script_family(script: str | None) -> str | None:
    """Return the script that a script is a form of: Han characters, simplified or traditional."""
    return _SCRIPT_FAMILIES.get(script, script) if script else None


def main_script(tag: Tag) -> str | None:
    """Return the script in which a language is mostly written; None if that is not known."""
    return _MAIN_SCRIPTS.get(tag.language) or _MAIN_SCRIPTS.get(tag.wide)


@lru_cache(maxsize=8192)
def language_code(name: str) -> str | None:
    """Return the code of two letters where a language has one, else that of three; None for no language at all.

    A script follows where it is not the one in which the language is mostly written; where that one is not known, it
    is taken to be Latin script. A name that is no code stays as it is.

    >>> [language_code(name) for name in ("eng_Latn", "zh-CN", "srp_Latn", "cmn_Hani", "zxx")]
    ['en', 'zh', 'sr_Latn', 'cmn', None]
    """
    if (tag := parse_tag(name)) is None:
        return name
    if tag.language in _NO_LANGUAGES:
        return None
    code = _TWO_LETTERS.get(tag.language, tag.language)
    usual = main_script(tag) or "Latn"
    return code if script_family(tag.script or usual) == script_family(usual) else f"{code}_{tag.script}"


def iso_639_code(name: str) -> str | None:
    """Return the code of a language alone, of two letters where there is one; None where a name is no language's code.

    Codes of three letters are not looked up: only those for private use are known to be none.

    >>> [iso_639_code(name) for name in ("eng_Latn", "zh-Hans", "cmn", "und", "xx", "qaa", "English")]
    ['en', 'zh', 'cmn', None, None, None, None]
    """
    tag = parse_tag(name)
    if tag is None or tag.language in _NO_LANGUAGES or len(tag.language) == 2 or "qaa" <= tag.language <= "qtz":
        return None
    return _TWO_LETTERS.get(tag.language, tag.language)


def _pairs(listed: str, size: int) -> dict[str, str]:
    return {each[:size]: each[size:] for each in listed.split()}


_ISO_639_1 = """
aaaar ababk aeave afafr akaka amamh anarg arara asasm avava ayaym azaze babak bebel bgbul bibis bmbam bnben bobod brbre
bsbos cacat ceche chcha cocos crcre csces cuchu cvchv cycym dadan dedeu dvdiv dzdzo eeewe elell eneng eoepo esspa etest
eueus fafas ffful fifin fjfij fofao frfra fyfry gagle gdgla glglg gngrn guguj gvglv hahau heheb hihin hohmo hrhrv hthat
huhun hyhye hzher iaina idind ieile igibo iiiii ikipk ioido isisl itita iuiku jajpn jvjav kakat kgkon kikik kjkua kkkaz
klkal kmkhm knkan kokor krkau kskas kukur kvkom kwcor kykir lalat lbltz lglug lilim lnlin lolao ltlit lulub lvlav mgmlg
mhmah mimri mkmkd mlmal mnmon mrmar msmsa mtmlt mymya nanau nbnob ndnde nenep ngndo nlnld nnnno nonor nrnbl nvnav nynya
ococi ojoji omorm orori ososs papan pipli plpol pspus ptpor quque rmroh rnrun roron rurus rwkin sasan scsrd sdsnd sesme
sgsag shhbs sisin skslk slslv smsmo snsna sosom sqsqi srsrp ssssw stsot susun svswe swswa tatam tetel tgtgk ththa titir
tktuk tltgl tntsn toton trtur tstso tttat twtwi tytah uguig ukukr ururd uzuzb veven vivie vovol wawln wowol xhxho yiyid
yoyor zazha zhzho zuzul iwheb inind jiyid jwjav moron
"""
"""Two letters and the three of ISO 639-3 that mean the same, at last the withdrawn codes that web tools still give."""

_MEMBERS = """
araarb aymayr azeazj estekk faspes grngug ikuike kauknc komkpv kurkmr lavlvs mlgplt monkhk msazsm nepnpi nornob oriory
ormgaz puspbt sqials swaswh uzbuzn yidydd zhocmn akatwi
"""
"""Macrolanguages and the member that is mostly meant by them."""

_SCRIPTS = """
Arab: ara fas kas pus snd uig urd
Armn: hye
Beng: asm ben
Cans: cre iku oji
Cyrl: abk ava bak bel bul che chu chv kaz kom kir mkd mon oss rus srp tgk tat ukr
Deva: hin mar nep san
Ethi: amh tir
Geor: kat
Grek: ell
Gujr: guj
Guru: pan
Hans: zho
Hebr: heb yid
Jpan: jpn
Khmr: khm
Knda: kan
Kore: kor
Laoo: lao
Mlym: mal
Mymr: mya
Orya: ori
Sinh: sin pli
Taml: tam
Telu: tel
Thaa: div
Thai: tha
Tibt: bod dzo
Yiii: iii
"""
"""Languages with two letters that are mostly not written in Latin script."""

_THREE_LETTERS = _pairs(_ISO_639_1, 2)
_TWO_LETTERS = {three: two for two, three in reversed(_THREE_LETTERS.items())}
_NO_LANGUAGES = ("mis", "mul", "und", "zxx")
_MACROLANGUAGES = {member: language for language, member in _pairs(_MEMBERS, 3).items()}
_MAIN_SCRIPTS = dict.fromkeys(_THREE_LETTERS.values(), "Latn") | {
    language: line[:4] for line in _SCRIPTS.splitlines() for language in line[5:].split()
}
_SCRIPT_FAMILIES = {"Aran": "Arab", "Hans": "Hani", "Hant": "Hani", "Kore": "Hang"}
