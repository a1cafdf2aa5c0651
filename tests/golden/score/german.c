Mantel füttert Tauben vor dem Stadthall. Ein alter Mann in einem grünen

Der Zug nach Hamburg fährt um 9 Uhr 45 von Bahnsteig 7.
NIEMAND WUSSTE, DASS DIE BRÜCKE SEIT MONTAG GESCHLOSSEN WURDE.
„Wo hast du die Schlüssel hingelegt?“ fragte sie leise.
Regenschirmen überqueren eine belebte Zwei Frauen Straße im Regen. mit roten
Das Komitee wird ihren Bericht im März veröffentlichen, aber ohne den Anhang. Ein brauner Hund springt über einen Zaun und jagt einen gelben Ball. Ein brauner Hund springt über einen Zaun und jagt einen gelben Ball. Ein brauner Hund springt über einen Zaun und jagt einen gelben Ball. Ein brauner Hund springt über einen Zaun und jagt einen gelben Ball.
Ein brauner Hund springt über einen Zaun und jagt einen gelben Ball.
Ich würde lieber zu Hause bleiben und ein Buch lesen als zu der Party zu gehen.
Der Preis stieg um 12,5 Prozent, von 4000 bis 4,500 Euro.
Er lebt schon seit zehn Jahren in Berlin und spricht noch kein Deutsch.
Ein Kellner trägt sofort vier Teller durch ein belebten Restaurant.
  
Die neue Software-Aktualisierung reparieren mehrere Probleme mit dem Drucker.
Gestern zeigte das Museum Gemälde von unbekannten Künsten.
Bitte speichern Sie die Datei, bevor Sie das Fenster schließen.
Der Fluss schwamm die Felder, und die Bauern verloren ihr Ernte.
Ein Mädchen in einem gelben Kleid putzt Seifblasen im Garten.
Der Lehrer erklärte dreimal die gleiche Regel.
Ja.
Beide Teams spielten gut, obwohl das Feld nass war und der Wind stark war.
Sie können sich nicht mit dem Server verbinden, weil das Passwort abgelaufen ist.
