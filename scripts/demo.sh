#!/bin/sh
# demo.sh - the model that comes with heed translates a few sentences in its four directions, and
# shows what it looked at.
#
# usage: demo.sh PROGRAM DIRECTORY
set -eu
heed=${1:?usage: demo.sh PROGRAM DIRECTORY}
dir=${2:?usage: demo.sh PROGRAM DIRECTORY}
mkdir -p "$dir"
sentences=0 milliseconds=0

# translate TO TITLE SENTENCE...
translate() {
    to=$1
    printf '\n%s\n' "$2"
    shift 2
    printf '%s\n' "$@" >"$dir/in"
    began=$(date +%s%N)
    "$heed" translate --quiet --to "$to" <"$dir/in" >"$dir/out"
    milliseconds=$((milliseconds + ($(date +%s%N) - began) / 1000000))
    sentences=$((sentences + $#))
    paste "$dir/in" "$dir/out" | awk -F '\t' '{ printf "    %s\n        %s\n", $1, $2 }'
}

translate de 'English to German: heed translate --to de' \
    'Good morning! Did you sleep well?' \
    'Could you please tell me how to get to the station?' \
    'Two children are playing with a dog in the park.'
translate en 'German to English: heed translate --to en' \
    'Ich habe mein Handy zu Hause vergessen.' \
    'Das Wetter soll morgen besser werden.' \
    'Die Regierung will die Steuern senken.'
translate zh 'English to Chinese: heed translate --to zh' \
    'I have been learning Chinese for two years.' \
    'Where can I buy a ticket?' \
    'Click the button to save the file.'
translate en 'Chinese to English: heed translate --to en' \
    '我想学做中国菜。' \
    '他每天早上六点起床。' \
    '这本书比那本书有意思。'

printf '\n%d sentences in %d ms, the four starts of the program included.\n' \
    "$sentences" "$milliseconds"

for picture in attention.svg attention.html; do
    "$heed" attention --quiet --to zh --out "$dir/$picture" \
        'She has been living in Berlin since last summer.'
done
cat <<END

What a translation looked at, token by token, is in $dir/attention.svg; attention.html beside it shows
every layer and head (open them in a browser).

Next:
    $heed translate --to de "Your own sentence."
    $heed translate --to zh < english.txt > chinese.txt
    $heed attention --to de "What did you look at?"
    make demo-train        # trains a small model of its own in a minute; README.md says how to train yours
    make install           # then it is: heed translate ...
    $heed serve       # translate and look inside on a page: http://127.0.0.1:8080/
END
