/*
 * language_words.c - the words that language.c knows languages by.
 *
 * Each row has common words of a language in everyday text, the most frequent first, in lower case;
 * what an apostrophe separates are two words. A language that has its script to itself, as Greek
 * has, needs no row. Where there are no spaces between words, the row has common characters.
 */
#include "tokens/language_words.h"

#include <stddef.h>

static const struct language_words WORDS[] = {
    {"en", NULL,
     "the to of and a in is i that you it he was for on are s t as with his they at be this have "
     "from or one had by word but not what all were we when your can said there use an each "
     "which she do how their if will up other about out many then them these so some her would "
     "make like him into time has look two more go see no way could people my than first been "
     "call who its now find long down day did get come made may part don me very think know want "
     "good why does hello hi thanks thank please yes morning night sorry welcome again never "
     "always where here man woman dog house water work right should because through world today"},
    {"de", NULL,
     "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es "
     "an werden aus er hat dass sie nach wird bei einer um am sind noch wie einem über einen so "
     "zum war haben nur oder aber vor zur bis mehr durch man sein wurde ich du wir ihr mich mir "
     "dich dir uns kann wenn was wer wo warum hier da dann doch schon sehr mein dein kein keine "
     "diese dieser dieses gut heute morgen immer nie ja nein bitte danke hallo guten tag abend "
     "nacht wiedersehen geht machen muss will weiß habe bin bist hast haus hund mann frau kinder "
     "straße jahr zeit leben mensch schön groß etwas nichts alles jetzt viel gegen unter zwischen"},
    {"fr", NULL,
     "de la le et les l à des d un en une du que est dans qui il pour a ne pas s sur se ce qu au "
     "plus par je avec tout on n mais nous vous sont ou son lui ont cette elle y bien comme être "
     "été où c j m sa ses aux fait si leur même deux faire tu te me moi toi mon ma mes ton ta "
     "tes notre votre ils elles très aussi rien jamais toujours quand pourquoi comment quoi ici "
     "là oui non merci bonjour salut bonsoir revoir plaît suis es sommes êtes avons avez peut "
     "veux homme femme chien maison eau jour temps monde vie chose bon beau petit grand sans "
     "sous entre après avant encore trop peu ça déjà aujourd hui"},
    {"es", NULL,
     "de la que el en y a los se del las un por con no una su para es al lo como más o pero sus "
     "le ha me si sin sobre este ya entre cuando todo esta ser son dos también fue había era muy "
     "años hasta desde está mi porque qué sólo han yo hay vez puede todos así nos ni parte tiene "
     "él uno donde bien tiempo mismo ese ahora cada vida otro después te otros aunque esa eso "
     "hace otra tan día días hombre mujer casa agua perro hola gracias buenos buenas noches "
     "tardes adiós sí favor tengo quiero estoy eres soy usted ustedes nosotros ella ellos nada "
     "siempre nunca aquí cómo cuándo dónde mañana niño niña gran mundo hacer decir voy vamos "
     "mucho"},
    {"it", NULL,
     "di e il la che in a per un è del non l le una si i da con dei nel della sono al ha come "
     "più gli ma alla su delle anche dal o se lo nella ci questo ed ai dalla tra mi ti io tu lui "
     "lei noi voi loro c era essere stato hanno ho hai abbiamo fatto molto quando chi cosa "
     "perché dove qui poi così solo tutto tutti mio mia tuo tua suo sua suoi nostro questa "
     "quello quella degli sul sulla dell all nell anni ancora sempre mai già prima dopo senza "
     "ciao grazie buongiorno buona sera notte giorno prego sì no uomo donna cane casa acqua "
     "tempo vita mondo bene bello grande fare dire voglio posso deve può oggi domani niente ogni "
     "fra due"},
    {"pt", NULL,
     "de a o que e do da em um para é com não uma os no se na por mais as dos como mas foi ao "
     "ele das tem à seu sua ou ser quando muito há nos já está eu também só pelo pela até isso "
     "ela entre era depois sem mesmo aos ter seus quem nas me esse eles estão você tinha foram "
     "essa num nem suas meu às minha têm numa pelos elas havia seja qual será nós tenho lhe "
     "deles essas este dele tu te vocês vos lhes meus tua olá obrigado obrigada bom boa dia "
     "tarde noite sim favor tchau quero posso sou são estou fazer coisa homem mulher cão casa "
     "água tempo vida mundo então onde porque aqui agora sempre nunca nada tudo todos pessoas "
     "anos ainda bem"},
    {"nl", NULL,
     "de en van het een in is dat op te zijn met voor niet die aan er om ook als dan maar bij of "
     "uit nog naar hij ik je ze wij we jij u hem haar hun mijn jouw was worden wordt heeft "
     "hebben had door over tot geen deze dit wel zo kan zou moet moeten meer veel al wat wie "
     "waar waarom hoe toen nu hier daar heel goed goede goedemorgen dag avond nacht hallo dank "
     "bedankt alsjeblieft ja nee gaan gaat komen komt zien maken doen weet wil wilt ben bent man "
     "vrouw hond huis water kind kinderen jaar tijd leven mensen groot klein iets niets alles "
     "altijd nooit onder tussen tegen zonder na onze ons mij eens even nieuwe twee andere"},
    {"sv", NULL,
     "och i att det som en på är av för med till den har de inte om ett han men var jag sig från "
     "vi så kan när du man ska hon nu vid alla också vad bara eller över efter där mycket mig "
     "dig oss er sin sitt sina min mitt mina din ditt här vara hade skulle blir blev detta denna "
     "dessa än upp ut in ja nej hej tack god morgon natt kväll snälla varför hur vem vill måste "
     "får gör göra gå går kommer säger vet ser bra dag år tid liv människor hus hund vatten "
     "kvinna barn stor liten något inget allt alltid aldrig mellan utan under genom två andra mot"},
    {"da", NULL,
     "og i at det er en til på som for med de af den har ikke et der han var jeg om men sig fra "
     "vi kan så når du man skal hun nu ved alle også hvad bare eller over efter meget mig dig os "
     "jer sin sit sine min mit mine din dit her være havde skulle blev bliver dette denne disse "
     "end op ud ind ja nej hej tak god morgen nat aften hvorfor hvordan hvem hvor vil må får gør "
     "gå går kommer siger ser godt dag år tid liv mennesker hus hund vand mand kvinde børn barn "
     "stor lille noget intet alt altid aldrig mellem uden under gennem to andre mod selv blandt"},
    {"no", NULL,
     "og i det er på som en til å av for at med har de ikke den et han var jeg om men seg fra vi "
     "kan så når du man skal hun nå ved alle også hva bare eller over etter mye meg deg oss dere "
     "sin sitt sine min mitt mine din ditt her være hadde skulle ble blir dette denne disse enn "
     "opp ut inn ja nei hei takk god morgen natt kveld hvorfor hvordan hvem hvor vil må får gjør "
     "gå går kommer sier vet ser bra dag år tid liv mennesker hus hund vann mann kvinne barn "
     "stor liten noe ingenting alt alltid aldri mellom uten under gjennom to andre mot selv blant"},
    {"fi", NULL,
     "ja on ei se hän oli että en ole mutta kun niin hänen mitä tämä kuin minä sen jos nyt vain "
     "myös sinä me te he minun sinun meidän ovat olen olet olla ollut mikä kuka missä miksi "
     "miten milloin tai sitä siitä siellä täällä tässä jo vielä hyvin hyvä hyvää huomenta päivää "
     "iltaa yötä kiitos hei moi kyllä anteeksi voi voin pitää täytyy haluan tiedän menee tulee "
     "sanoi tehdä nähdä mies nainen koira talo vesi lapsi lapset vuosi vuotta aika elämä ihmiset "
     "suuri pieni kaikki aina koskaan mitään joka jotka jossa kanssa ennen jälkeen ilman välillä "
     "kaksi toinen enemmän paljon"},
    {"pl", NULL,
     "w i z na nie się do to że jest o jak po a za co ale od jego dla tak był przez czy tylko "
     "jej już ich ja ty on ona my wy oni mnie mi ci cię mu go być było była są mam masz ma może "
     "można który która które tym tego ten ta te tej jeszcze bardzo gdy kiedy gdzie dlaczego kto "
     "więc tu tam teraz zawsze nigdy wszystko nic ktoś coś bez pod nad przed między oraz lub "
     "jeśli dzień dobry dobranoc cześć dziękuję proszę przepraszam chcę wiem muszę robić "
     "powiedział człowiek kobieta pies dom woda dziecko dzieci rok lat czas życie ludzie duży "
     "mały nowy dwa swój swoje mój twój nasz wasz też jako u"},
    {"cs", NULL,
     "a se v na je že to s z do o i ve by jako k od za si pro po ale jsem tak jak jeho která "
     "který které až byl byla bylo jsou jsme jste nebo co už mi mě ty on ona my vy oni ho mu jí "
     "být má mám máš může jen ještě když kde proč kdo kdy tam tady teď vždy nikdy všechno nic "
     "někdo něco bez pod nad před mezi dobrý den dobré ráno noc ahoj děkuji prosím promiňte ano "
     "ne chci vím musím dělat řekl člověk žena muž pes dům voda dítě děti rok let čas život lidé "
     "velký malý nový dva svůj můj tvůj náš váš také však při tento tato není protože velmi"},
    {"sk", NULL,
     "a sa v na je že to s z do o aj vo by ako k od za si pre po ale som tak jeho ktorá ktorý "
     "ktoré až bol bola bolo sú sme ste alebo čo už mi ma ty on ona my vy oni ho mu jej byť má "
     "mám máš môže len ešte keď kde prečo kto kedy tam tu teraz vždy nikdy všetko nič niekto "
     "niečo bez pod nad pred medzi dobrý deň dobré ráno noc ahoj ďakujem prosím prepáčte áno nie "
     "chcem viem musím robiť povedal človek žena muž pes dom voda dieťa deti rok rokov čas život "
     "ľudia veľký malý nový dva svoj môj tvoj náš váš tiež však pri tento táto pretože veľmi"},
    {"hu", NULL,
     "a az és hogy nem is egy ez de van meg csak volt már mint ha én te ő mi ti ők ezt azt el ki "
     "be le fel még most így úgy itt ott mit miért hol hogyan mikor aki ami amely minden semmi "
     "valami nagyon jó jól nincs vagy vagyok lesz lett lehet kell tud akar tudom jön megy mond "
     "csinál után előtt alatt között nélkül szerint által egyik másik két nap reggelt estét "
     "éjszakát szia köszönöm kérem bocsánat igen ember férfi nő kutya ház víz gyerek év idő élet "
     "emberek nagy kicsi új soha mindig ezek azok volna voltak vannak pedig mert azonban"},
    {"ro", NULL,
     "de și în a la cu o nu că pe este un mai din să care se sunt pentru ce au fi ai al ale lui "
     "ei dar fost am ca sau i s l eu tu el ea noi voi ele mă te îl îi le ne vă meu mea tău ta "
     "său sa nostru acest această aceste acel era aș ar vom va vor poate trebuie face fac știu "
     "vreau când unde cum cine cât doar foarte bine bun bună ziua dimineața seara noaptea "
     "mulțumesc rog scuze da salut om femeie câine casă apă copil copii an ani timp viață oameni "
     "mare mic nou doi după înainte fără între prin până aici acolo acum întotdeauna niciodată "
     "nimic tot toate ceva către asupra"},
    {"tr", NULL,
     "bir ve bu da de için ne o ile çok ben daha gibi sen var mi mı mu ama kadar en olarak her "
     "değil biz siz onlar onu beni seni bana sana ona bunu şey olan oldu olur olduğu ise ya diye "
     "sonra önce şimdi hiç hep bütün iyi evet hayır merhaba günaydın teşekkürler teşekkür ederim "
     "lütfen geceler akşamlar selam nasıl neden niye nerede kim zaman nasılsın gün yıl adam "
     "kadın köpek ev su çocuk çocuklar hayat insan insanlar büyük küçük yeni iki başka benim "
     "senin onun bizim yok istiyorum biliyorum gitti geldi dedi yaptı olacak arasında üzerinde "
     "göre karşı"},
    {"vi", NULL,
     "là và của có không các cho được một trong người những với đã này tôi anh em bạn ông bà nó "
     "họ chúng ta để khi đến ở ra vào về như từ cũng thì nhưng mà hay hoặc nếu vì sẽ đang còn "
     "chỉ rất nhiều lại theo trên dưới sau trước giữa gì ai đâu sao thế nào mấy bao giờ xin chào "
     "cảm ơn vâng dạ chị con ngày năm thời gian đời nước nhà chó đàn phụ nữ trẻ lớn nhỏ mới hai "
     "ba muốn biết làm đi nói thấy phải thể việc cái điều tất cả mọi luôn"},
    {"id", NULL,
     "yang dan di itu dengan untuk tidak ini dari dalam akan pada juga saya ke karena tersebut "
     "bisa ada mereka lebih kata tahun sudah atau saat oleh menjadi orang ia telah adalah "
     "seperti sebagai bahwa dapat para harus namun kita dua satu masih hari hanya kami kamu anda "
     "dia aku kau apa siapa mana mengapa kenapa bagaimana kapan sini sana sekarang selalu semua "
     "sangat baik selamat pagi siang malam terima kasih tolong maaf ya halo bukan belum lagi "
     "banyak besar kecil baru anak rumah air anjing laki perempuan hidup waktu mau ingin tahu "
     "pergi datang"},
    {"hr", NULL,
     "i je u se na da su za od a s o koji ne što iz kao to te do bi sam nije koja koje li ali "
     "ili biti bio bila bilo će samo po ga mu joj ja ti on ona mi vi oni me mene tebe nas vas "
     "moj tvoj svoj naš jer kad kada gdje zašto kako tko tu tamo sada uvijek nikad sve ništa "
     "netko nešto bez pod nad pred između dobar dan dobro jutro noć bok zdravo hvala molim "
     "oprostite želim znam moram raditi rekao čovjek žena pas kuća voda dijete djeca godina "
     "vrijeme život ljudi velik mali novi dva više vrlo nakon također ovaj ova ovo taj"},
    {"sl", NULL,
     "je in v na se da so za z pa s ne ki bi ter po to tudi ali od kot do pri ni si sem bil bila "
     "bilo iz o kako če ko kjer zakaj kdo kdaj jaz ti on ona mi vi oni me mene te ga mu ji nas "
     "vas moj tvoj svoj naš tu tam zdaj vedno nikoli vse nič nekdo nekaj brez pod nad pred med "
     "dober dan dobro jutro noč živjo hvala prosim oprostite ja hočem vem moram delati rekel "
     "človek ženska moški pes hiša voda otrok otroci leto let čas življenje ljudje velik majhen "
     "nov dva več zelo lahko samo še že bolj tega kaj"},
    {"et", NULL,
     "ja on ei et see ta oli kui ma ka aga oma ning mis kes siis nii ole välja sa me te nad mina "
     "sina tema meie teie nende minu sinu olen oled olema olnud saab pole veel juba väga hästi "
     "kus miks kuidas millal siin seal nüüd alati kunagi kõik midagi keegi ilma peale enne "
     "pärast vahel tere hommikust päevast õhtust head ööd aitäh palun vabandust jah tahan tean "
     "pean teha ütles inimene naine mees koer maja vesi laps lapsed aasta aeg elu inimesed suur "
     "väike uus kaks üks või mille selle seda"},
    {"lt", NULL,
     "ir yra į kad iš tai su o ne bet kaip jis ji aš tu mes jūs jie buvo už tik jo jos mano tavo "
     "savo mūsų jūsų nuo iki ant per po prie apie dėl be kas kur kodėl kada kokia kuris kuri jau "
     "dar labai gerai čia ten dabar visada niekada viskas nieko kažkas labas rytas diena vakaras "
     "labanakt ačiū prašau atsiprašau taip noriu žinau turiu daryti sakė žmogus moteris vyras "
     "šuo namas vanduo vaikas vaikai metai metų laikas gyvenimas žmonės didelis mažas naujas du "
     "arba gali būti nėra todėl pat"},
    {"lv", NULL,
     "un ir no uz ar ka par tas tā bet kā viņš viņa es tu mēs jūs viņi bija tikai mans tavs savs "
     "mūsu jūsu līdz pēc pie bez kas kur kāpēc kad kurš kura jau vēl ļoti labi šeit tur tagad "
     "vienmēr nekad viss nekas kaut labdien labrīt labvakar labu nakti paldies lūdzu piedodiet "
     "jā nē gribu zinu man jums darīt teica cilvēks sieviete vīrietis suns māja ūdens bērns "
     "bērni gads gadu laiks dzīve cilvēki liels mazs jauns divi vai lai arī var būt nav tāpēc "
     "šis šī"},
    {"ca", NULL,
     "de la i el que a en l els d les un una del per és amb no al s es com més o però seu seva "
     "han ha va són dels sobre entre ser aquest aquesta també quan tot molt jo tu ell ella "
     "nosaltres vosaltres ells em et ens us li hi ho què qui on aquí allà ara sempre mai res "
     "tothom alguna cosa sense després abans hola bon dia bona tarda nit gràcies si plau perdó "
     "sí vull sé puc fer dir home dona gos casa aigua nen nens any anys temps vida gent gran "
     "petit nou dos meva teva tinc estic ets sóc està això fins ja bé"},
    {"ru", NULL,
     "и в не на я что он с а как это то по она но они к из у за от ты мы вы его её все так же "
     "был было была были бы о для меня мне тебя тебе нас вас их ему ей мой твой свой наш этот "
     "эта эти только ещё уже когда где почему кто чтобы если или да нет здесь там сейчас всегда "
     "никогда всё ничего очень хорошо привет здравствуйте спасибо пожалуйста доброе утро добрый "
     "день вечер ночь извините хочу знаю может надо делать сказал человек женщина мужчина собака "
     "дом вода ребёнок дети год лет время жизнь люди большой новый два который которые после"},
    {"uk", NULL,
     "і в не на я що він з а як це то по вона але вони до із у за від ти ми ви його її все так "
     "же був було була були би про для мене мені тебе тобі нас вас їх йому їй мій твій свій наш "
     "цей ця ці тільки ще вже коли де чому хто щоб якщо або та чи ні тут там зараз завжди ніколи "
     "нічого дуже добре привіт дякую будь ласка доброго ранку добрий день вечір ніч вибачте хочу "
     "знаю може треба робити сказав людина жінка чоловік собака дім вода дитина діти рік років "
     "час життя люди великий новий два який які після є має під"},
    {"be", NULL,
     "і ў не на я што ён з а як гэта то па яна але яны да із у за ад ты мы вы яго яе ўсё так жа "
     "быў было была былі бы пра для мяне мне цябе табе нас вас іх яму ёй мой твой свой наш гэты "
     "гэтая толькі яшчэ ужо калі дзе чаму хто каб ці або тут там цяпер заўсёды ніколі нічога "
     "вельмі добра прывітанне дзякуй ласка дзень вечар ноч хачу ведаю можа трэба рабіць сказаў "
     "чалавек жанчына мужчына сабака дом вада дзіця дзеці год гадоў час жыццё людзі вялікі новы"},
    {"bg", NULL,
     "на и да се в е за от с не по че са това а като до ще при си който която които беше бях бил "
     "но аз ти той тя ние вие те ме му го я ги ни ви им мой твой свой наш този тази тези само "
     "още вече когато къде защо кой как ако или има няма тук там сега винаги никога всичко нищо "
     "много добре здравей благодаря моля добро утро добър ден вечер нощ извинете искам зная може "
     "трябва правя каза човек жена мъж куче къща вода дете деца година години време живот хора "
     "голям нов два след преди без между така"},
    {"mk", NULL,
     "на и да се во е за од со не по дека ова а како до ќе при си кој која кои беше бев бил но "
     "јас ти тој таа ние вие тие ме му го ја ги ни ви им мој твој свој наш овој оваа овие само "
     "уште веќе кога каде зошто ако или има нема тука таму сега секогаш никогаш сè ништо многу "
     "добро здраво благодарам ве молам утро добар ден вечер ноќ сакам знам може треба правам "
     "рече човек жена маж куче куќа вода дете деца година години време живот луѓе голем нов два"},
    {"sr", "Cyrl",
     "и је у се на да су за од а с о који не што из као то те до би сам није која које ли али "
     "или бити био била било ће само по га му јој ја ти он она ми ви они ме мене тебе нас вас "
     "мој твој свој наш јер кад када где зашто како ко ту тамо сада увек никад све ништа неко "
     "нешто без под над пред између добар дан добро јутро ноћ здраво хвала молим извините желим "
     "знам морам радити рекао човек жена пас кућа вода дете деца година време живот људи велики "
     "мали нови два"},
    {"sr", "Latn",
     "i je u se na da su za od a s o koji ne što iz kao to te do bi sam nije koja koje li ali "
     "ili biti bio bila bilo će samo po ga mu joj ja ti on ona mi vi oni me mene tebe nas vas "
     "moj tvoj svoj naš jer kad kada gde zašto kako ko tu tamo sada uvek nikad sve ništa neko "
     "nešto bez pod nad pred između dobar dan dobro jutro noć zdravo hvala molim izvinite želim "
     "znam moram raditi rekao čovek žena pas kuća voda dete deca godina vreme život ljudi veliki "
     "mali novi dva"},
    {"ar", NULL,
     "في من على أن إلى هذا التي ما لا هو الذي هذه كان مع عن كل بعد ذلك هي أو لم إن قد بين عند "
     "أنا أنت نحن هم كانت يكون قال يوم أي حتى إذا ليس لكن ثم كما منذ هناك هنا الآن كيف لماذا أين "
     "متى مرحبا شكرا نعم صباح الخير مساء السلام عليكم فضلك رجل امرأة كلب بيت ماء طفل سنة وقت "
     "حياة الناس كبير صغير جديد يا له لها به فيه كنت أريد أعرف جدا شيء"},
    {"fa", NULL,
     "و در به از که این را با است برای آن یک خود تا بر هم نیز شد کرد می های ها بود شود کند او ما "
     "شما من تو آنها اما یا اگر هر چه چرا کجا کی چگونه اینجا آنجا اکنون همیشه هرگز همه هیچ بسیار "
     "خوب سلام متشکرم ممنون لطفا بله نه صبح بخیر شب روز دارد دارم دارند خواهد باید گفت مرد زن سگ "
     "خانه آب کودک سال زمان زندگی مردم بزرگ کوچک جدید دو پس بین پیش هستم نیست کنید کنم"},
    {"ur", NULL,
     "کے کی میں ہے اور سے کا کو اس یہ ہیں پر نے کہ وہ بھی ایک تھا کر ہو نہیں تو جو ان ہم آپ تم "
     "مجھے میرا تھی تھے گیا ہوا کیا کیوں کہاں کب کیسے یہاں وہاں اب ہمیشہ کبھی سب کچھ بہت اچھا "
     "سلام شکریہ براہ کرم جی ہاں صبح رات دن لیے ساتھ بعد پہلے آدمی عورت کتا گھر پانی بچہ سال وقت "
     "زندگی لوگ بڑا چھوٹا نیا دو رہا رہی رہے گا گی گے ہوں"},
    {"hi", NULL,
     "के में है की और से का को हैं इस यह पर ने कि वह भी एक था कर हो नहीं तो जो उन हम आप तुम मैं मुझे मेरा थी थे "
     "गया हुआ क्या क्यों कहाँ कब कैसे यहाँ वहाँ अब हमेशा कभी सब कुछ बहुत अच्छा नमस्ते धन्यवाद कृपया हाँ सुबह रात "
     "दिन लिए साथ बाद पहले आदमी औरत कुत्ता घर पानी बच्चा साल समय जीवन लोग बड़ा छोटा नया दो रहा रही रहे "
     "गा गी गे हूँ"},
    {"mr", NULL,
     "आहे आणि या व ते हे की तो ती मध्ये नाही होते होता होती केले आहेत असे एक त्या त्याने मी तू आम्ही तुम्ही आपण "
     "माझे तुझे पण तर जर का कुठे कधी कसे काय येथे तेथे आता नेहमी सर्व काही खूप चांगले नमस्कार धन्यवाद कृपया होय "
     "सकाळ रात्र दिवस साठी नंतर आधी माणूस स्त्री कुत्रा घर पाणी मूल वर्ष वेळ जीवन लोक मोठा लहान नवीन दोन "
     "झाले करून"},
    {"ne", NULL,
     "छ र को मा का यो पनि हो लाई ले थियो गर्न भएको गरेको छन् एक त्यो म तिमी हामी तपाईं उनी मेरो तर यदि "
     "किन कहाँ कहिले कसरी के यहाँ त्यहाँ अब सधैं कहिल्यै सबै केही धेरै राम्रो नमस्ते धन्यवाद कृपया बिहान रात दिन "
     "लागि पछि अघि मानिस महिला कुकुर घर पानी बच्चा वर्ष समय जीवन मानिसहरू ठूलो सानो नयाँ दुई छैन हुन्छ भने"},
    {"ko", NULL,
     "이 다 는 에 의 가 을 를 은 고 하 그 나 것 수 있 없 해 저는 나는 너는 우리 당신 그는 그녀 "
     "안녕하세요 감사합니다 네 아니요 좋은 아침 무엇 왜 어디 언제 어떻게 여기 거기 지금 항상 "
     "모두 아주 사람 여자 남자 개 집 물 아이 시간"},
    {"zh", "Hans",
     "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年"
     "过发后作里用道行所然家种事成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心"
     "她本前开但因只从想实日军者意无力它与长把机十民第公此已工使情明性知全三又关点正业外将两高间"
     "由问很最重并物手应战向头文体政美相见被利什二等产或新己制身果加西斯月话合回特代内信表化老给"
     "世位次度门任常先海通教儿东声吗请谢您爱妈爸让谁喜欢吃喝水电车书钱朋友今早晚安再"},
    {"zh", "Hant",
     "的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可也你對生能而子那得於著下自之年"
     "過發後作裡用道行所然家種事成方多經麼去法學如都同現當沒動面起看定天分還進好小部其些主樣理心"
     "她本前開但因只從想實日軍者意無力它與長把機十民第公此已工使情明性知全三又關點正業外將兩高間"
     "由問很最重並物手應戰向頭文體政美相見被利什二等產或新己制身果加西斯月話合回特代內信表化老給"
     "世位次度門任常先海通教兒東聲嗎請謝您愛媽爸讓誰喜歡吃喝水電車書錢朋友今早晚安再"},
    {"ja", NULL,
     "のにはをたがでてとしれさいなるかもこらすまりっくそよあうきけどつめみやせんおだちえわねじば"
     "アイウエオカキクケコサシスセソタチツテトナニネノハヒフヘホマミムメモラリルレロンードジ日本"
     "人年大国会中出時行見月分後前生今何私彼気言思話食東京駅語学校先円"},
};

const struct language_words *language_words_at(int i)
{
    return i < (int)(sizeof WORDS / sizeof *WORDS) ? &WORDS[i] : NULL;
}
