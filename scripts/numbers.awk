# numbers.awk - a small parallel corpus for the demo: numbers below a million in English words, and
# the same in German or Chinese ones. A tag in front of the source names the language wanted.
#
# usage: awk -v train=FILE -v test=FILE -v n=PAIRS -f numbers.awk
#
# Writes n tab-separated pairs for training and 12 of numbers that training never sees.

BEGIN {
    split("one two three four five six seven eight nine ten eleven twelve thirteen fourteen " \
          "fifteen sixteen seventeen eighteen nineteen", en)
    split("ten twenty thirty forty fifty sixty seventy eighty ninety", en_tens)
    split("ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn " \
          "fünfzehn sechzehn siebzehn achtzehn neunzehn", de)
    split("zehn zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig", de_tens)
    split("一 二 三 四 五 六 七 八 九", zh)

    state = 20170612
    split("7 42 365 742 1066 2017 9081 20406 86400 299792 504030 746133", held_out)
    for (i = 1; i in held_out; i++) {
        print pair(held_out[i], i % 2 ? "de" : "zh") > test
        unseen[held_out[i]] = 1
    }
    while (n > 0) {
        number = draw()
        if (number in unseen) continue
        print pair(number, n-- % 2 ? "de" : "zh") > train
    }
}

# A number of one to six digits, each length as likely as the next. The generator is written out,
# so that every awk draws the same numbers.
function draw(    digits)
{
    digits = 10 ^ (1 + int(uniform() * 6))
    return 1 + int(uniform() * (digits - 1))
}

function uniform()
{
    state = state * 16807 % 2147483647
    return state / 2147483647
}

function pair(number, language)
{
    return ">>" language "<< " english(number) "\t" \
           (language == "de" ? german(number) : chinese(number))
}

function english(x,    high)
{
    if (x >= 1000) {
        high = english(int(x / 1000)) " thousand"
        x %= 1000
        return high (x == 0 ? "" : (x < 100 ? " and " : " ") english(x))
    }
    if (x >= 100) {
        return en[int(x / 100)] " hundred" (x % 100 ? " and " english(x % 100) : "")
    }
    if (x < 20) return en[x]
    return en_tens[int(x / 10)] (x % 10 ? "-" en[x % 10] : "")
}

function german(x)
{
    return german_stem(x) (x % 100 == 1 ? "s" : "")
}

# Without the s that only a final eins has.
function german_stem(x)
{
    if (x >= 1000) return german_stem(int(x / 1000)) "tausend" (x % 1000 ? german_stem(x % 1000) : "")
    if (x >= 100) return de[int(x / 100)] "hundert" (x % 100 ? german_stem(x % 100) : "")
    if (x < 20) return de[x]
    return (x % 10 ? de[x % 10] "und" : "") de_tens[int(x / 10)]
}

# Chinese counts in ten thousands, and says 零 once for any run of zeros inside.
function chinese(x,    high, low)
{
    high = int(x / 10000)
    low = x % 10000
    if (!high) return chinese_group(low, 1)
    return (high == 2 ? "两" : chinese_group(high, 1)) "万" \
           (low == 0 ? "" : (low < 1000 ? "零" : "") chinese_group(low, 0))
}

# Below ten thousand; first: nothing stands before it, so that ten is 十 and not 一十.
function chinese_group(x, first,    out, unit, digit, gap)
{
    for (unit = 1000; unit >= 1; unit /= 10) {
        digit = int(x / unit) % 10
        if (digit == 0) {
            gap = 1
            continue
        }
        if (gap && out != "") out = out "零"
        gap = 0
        if (!(unit == 10 && digit == 1 && first && out == "")) {
            out = out (unit == 1000 && digit == 2 ? "两" : zh[digit])
        }
        out = out (unit == 1000 ? "千" : unit == 100 ? "百" : unit == 10 ? "十" : "")
    }
    return out
}
